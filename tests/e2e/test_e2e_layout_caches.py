"""L16: JIT caches of every depth beside each other, of which an environment uses one folder alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from layouts import REFUSED, SUPPORTED, Layout, Told, entering, fired, look_at, said, stock
from support.workshop import Built, Workshop

from fleetcheck.demo.tree import Environment
from fleetcheck.facts.records import Cache

NINJA = (Path(__file__).parents[1] / "agent/data/build.ninja.trtllm_comm.txt").read_text()
OF_NINJA = "/root/ml-env/lib/python3.12/site-packages"
CACHE = "/root/.cache/flashinfer"
DEAD = "/opt/gone/lib/python3.12/site-packages"
LAYOUTS: dict[str, Layout] = {}
layout = entering(LAYOUTS)


@layout("fusion-refused", "csrc-stale-cache", **REFUSED)
def l16_stale_cache(shop: Workshop, built: Built, path: str) -> Environment:
    """Its folder, 0.6.2/120a, holds a module of a dead environment, one of another, its own, and an older one."""
    made = stock(shop, built, path)
    own = str(made.site).removeprefix(str(built.tree.root))
    module(built, "0.6.2/120a", "trtllm_comm", DEAD)
    module(built, "0.6.2/120a", "norm", "/opt/l16-untouched-by-the-others" + own.removeprefix(path))
    module(built, "0.6.2/120a", "page", own)
    older = module(built, "0.6.2/120a", "sampling", own)
    os.utime(older / "sampling.so", (1000, 1000))
    return made


@layout(**SUPPORTED)
def l16_untouched_by_the_others(shop: Workshop, built: Built, path: str) -> Environment:
    """FlashInfer 0.6.18 would use 0.6.18/120f, which is not there: no other folder concerns it."""
    return stock(shop, built, path, "0.6.18")


def module(built: Built, workspace: str, name: str, site: str) -> Path:
    """Put a module into the cache that was built from the FlashInfer of ``site``."""
    place = f"{CACHE}/{workspace}/cached_ops/{name}".replace("//", "/")
    built.tree.write(f"{place}/build.ninja", NINJA.replace(OF_NINJA, site).replace("90a", "120a"))
    return built.tree.write(f"{place}/{name}.so", "").parent


def others(built: Built) -> None:
    """The folders of other releases, and those that tell of a failed detection of the GPUs."""
    module(built, "0.6.0/120a", "trtllm_comm", DEAD)
    module(built, "0.6.17", "trtllm_comm", DEAD)
    module(built, "120", "batch_decode", DEAD)
    built.tree.write(f"{CACHE}/noarch/flashinfer_jit.log", "")
    built.tree.write(f"{CACHE}/cubins/x/y.cubin", "")


@pytest.fixture(scope="module")
def told(workspace: Path) -> Told:
    return look_at(workspace / "caches", LAYOUTS, also=others)


@pytest.fixture
def cache(told: Told) -> Cache:
    assert told.facts.caches is not None
    (found,) = told.facts.caches
    return found


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_said_of_it(told: Told, name: str) -> None:
    said(told, name, LAYOUTS[name])


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_fires_on_it(told: Told, name: str) -> None:
    fired(told, name, LAYOUTS[name])


def test_each_kind_of_stale_module_is_told_once_of_the_one_folder(told: Told) -> None:
    found = {one.message: one.severity for one in told.findings if one.rule == "csrc-stale-cache"}
    assert sorted(found.values()) == ["info", "warning", "warning"]
    assert all(f"{CACHE}/0.6.2/120a/cached_ops" in message for message in found)
    dead, foreign, older = (
        next(message for message in found if word in message)
        for word in ("is not there any more", "of another environment", "are older than")
    )
    assert f"(trtllm_comm) were built from {DEAD}/flashinfer/data/csrc" in dead
    assert "(norm)" in foreign
    assert "(sampling)" in older
    assert "page" not in "".join(found)


def test_every_depth_is_read(cache: Cache) -> None:
    seen = {(one.version, one.arch, one.name) for one in cache.modules}
    assert seen == {
        ("0.6.2", "120a", "trtllm_comm"), ("0.6.2", "120a", "norm"), ("0.6.2", "120a", "page"),
        ("0.6.2", "120a", "sampling"), ("0.6.0", "120a", "trtllm_comm"), ("0.6.17", None, "trtllm_comm"),
        (None, "120", "batch_decode"),
    }  # fmt: skip
    gone = {one.name for one in cache.modules if any(folder.exists is False for folder in one.csrc)}
    assert gone == {"trtllm_comm", "batch_decode"}
    assert {one.gencode for one in cache.modules} == {("120a",)}


def test_a_failed_detection_is_told_by_its_folders(cache: Cache) -> None:
    assert set(cache.undetected) == {"0.6.17", "noarch"}
    assert (cache.path, cache.truncated, cache.error) == (CACHE, None, None)
