"""JIT caches: a real build.ninja read right, every depth of every release, and a cost that files do not drive."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from agent_host import Host, look

from fleetcheck.agent.evidence import Request
from fleetcheck.agent.program import caches as scan
from fleetcheck.agent.program.caches import CacheScan, cache_bases
from fleetcheck.agent.program.values import Root
from fleetcheck.facts.caches import caches
from fleetcheck.facts.host import host_facts

NINJA = (Path(__file__).parent / "data/build.ninja.trtllm_comm.txt").read_text()
CSRC = "/root/ml-env/lib/python3.12/site-packages/flashinfer/data/csrc"
BASE = "/home/svc/.cache/flashinfer"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "root")


def module(host: Host, inside: str, name: str = "trtllm_comm", ninja: str | bytes = NINJA) -> Path:
    """Put a module into the cache; returns its folder."""
    place = f"{BASE}/{inside}/cached_ops/{name}" if inside else f"{BASE}/cached_ops/{name}"
    host.write(f"{place}/build.ninja", ninja)
    return host.at(place)


def seen(host: Host) -> dict[str, Any]:
    """Look as the agent does for a login whose home is the host's."""
    answer = look(Request(sysroot=str(host.root)), env={**os.environ, "HOME": "/home/svc"})
    assert answer.parts["end"]["errors"] == []
    (item,) = answer.parts["caches"]["items"]
    return dict(item)


def test_a_real_build_file(host: Host) -> None:
    folder = module(host, "0.6.2/90a")
    (folder / "trtllm_comm.so").write_bytes(b"so")
    source = host.write(f"{CSRC}/trtllm_allreduce.cu", "// newer\n")
    os.utime(folder / "trtllm_comm.so", (1000, 1000))
    os.utime(source, (2000, 2000))
    item = seen(host)
    (found,) = caches({"items": [item]})[0].modules
    assert (found.name, found.version, found.arch, found.cuda_home) == (
        "trtllm_comm", "0.6.2", "90a", "/usr/local/cuda",
    )  # fmt: skip
    assert found.path == f"{BASE}/0.6.2/90a/cached_ops/trtllm_comm"
    assert [(one.path, one.exists) for one in found.csrc] == [(CSRC, True)]
    assert found.gencode == ("90a",)
    assert [one.path for one in found.includes][:2] == [f"{CSRC.removesuffix('/csrc')}/include", CSRC]
    assert (found.built, found.built_at) == (True, 1000.0)
    assert (found.newest_source, found.newest_source_at) == (f"{CSRC}/trtllm_allreduce.cu", 2000.0)
    assert (item["truncated"], item["error"], item["exists"]) == (None, None, True)


def test_every_depth_and_what_tells_of_a_failed_detection(host: Host) -> None:
    for inside in ("0.6.17/120f", "0.6.17", "120", "noarch", ""):
        module(host, inside)
    host.write(f"{BASE}/0.7.1/flashinfer_jit.log", "")
    host.write(f"{BASE}/cubins/x/y", "")
    (cache,) = caches({"items": [seen(host)]})
    assert {(one.version, one.arch) for one in cache.modules} == {
        ("0.6.17", "120f"), ("0.6.17", None), (None, "120"), (None, "noarch"), (None, None),
    }  # fmt: skip
    assert set(cache.undetected) == {"0.6.17", "noarch", ".", "0.7.1"}
    assert {one.exists for module in cache.modules for one in module.csrc} == {False}


def test_blanks_and_colons_of_ninja(host: Host) -> None:
    module(host, "0.6.2/90a", ninja=NINJA.replace("/root/ml-env", "/root/my$ env$:2"))
    (cache,) = caches({"items": [seen(host)]})
    assert cache.modules[0].csrc[0].path == CSRC.replace("ml-env", "my env:2")


def test_locks_and_their_owners(host: Host) -> None:
    module(host, "0.6.2/90a")
    torch = module(host, "120", "batch_decode") / "lock"
    torch.write_text("")
    held = host.write(f"{BASE}/0.6.2/90a/cached_ops/tmp/trtllm_comm.lock", "")
    free = host.write(f"{BASE}/0.6.2/90a/cached_ops/tmp/norm.lock", "")
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        host.write("/proc/locks", Path("/proc/locks").read_bytes())
        (cache,) = caches({"items": [seen(host)]})
    states = {Path(lock.path).name: (lock.kind, lock.held) for lock in cache.locks}
    assert states == {"lock": ("file", False), held.name: ("flock", True), free.name: ("flock", False)}


BROKEN: dict[str, str | bytes] = {
    "empty": "",
    "binary": bytes(range(256)) * 100,
    "large": b"x" * (2 << 20),
    "one line": "build a: cuda_compile " + "y" * 60000 + "/csrc/z.cu",
    "many lines": "build a: cuda_compile /s/csrc/z.cu\n" * 50000,
    "half": NINJA[: len(NINJA) // 2],
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_build_file_is_a_value(host: Host, kind: str) -> None:
    module(host, "0.6.2/90a", ninja=BROKEN[kind])
    (cache,) = caches({"items": [seen(host)]})
    assert [one.name for one in cache.modules] == ["trtllm_comm"]
    assert len(cache.model_dump_json()) < 200_000


def test_odd_things_in_its_place(host: Host) -> None:
    folder = module(host, "0.6.2/90a")
    (folder / "build.ninja").unlink()
    (folder / "build.ninja").mkdir()
    loop = module(host, "0.6.2/90a", "loop")
    (loop / "build.ninja").unlink()
    (loop / "build.ninja").symlink_to("build.ninja")
    pipe = module(host, "0.6.2/90a", "pipe")
    (pipe / "build.ninja").unlink()
    os.mkfifo(pipe / "build.ninja")
    host.at(f"{BASE}/0.6.2/self").symlink_to(".")
    (cache,) = caches({"items": [seen(host)]})
    assert {one.name: one.error for one in cache.modules} == {
        "trtllm_comm": "EINVAL", "loop": "ELOOP", "pipe": "EINVAL",
    }  # fmt: skip


class Entries:
    """A folder of a million files as ``os.scandir`` gives it, counting what is taken of it."""

    taken = 0

    def __init__(self, real: Any) -> None:
        self.real = real

    def __enter__(self) -> Any:
        def endless() -> Any:
            first = next(iter(self.real))
            for _ in range(1_000_000):
                Entries.taken += 1
                yield first

        return endless()

    def __exit__(self, *_: object) -> None:
        self.real.close()


def test_no_more_than_a_bounded_number_of_entries_is_taken(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    module(host, "0.6.2/90a")
    host.write(f"{BASE}/0.6.2/90a/cached_ops/tmp/a.lock", "")
    real = os.scandir
    monkeypatch.setattr(scan.os, "scandir", lambda folder: Entries(real(folder)))
    value = CacheScan(Root(str(host.root)), BASE).run()
    assert value["truncated"]
    assert value["entries"] <= scan.MOST_LISTED
    assert Entries.taken <= scan.MOST_LISTED + 100 * scan.MOST_FOLDERS
    assert len(value["modules"]) <= scan.MOST_BUILDS


def test_many_real_files_do_not_hide_what_decides(host: Host) -> None:
    module(host, "0.6.2/90a")
    folder = host.at(f"{BASE}/0.6.2/90a/cached_ops")
    for number in range(scan.MOST_ENTRIES + 500):
        (folder / f"{number}.o").touch()
    item = seen(host)
    assert item["entries"] <= scan.MOST_ENTRIES + 20
    assert item["truncated"] == f"more than {scan.MOST_ENTRIES} entries in one folder"
    assert [one["name"] for one in item["modules"]] == ["trtllm_comm"]


def test_whose_caches_are_looked_at() -> None:
    processes = [
        {"pid": 1, "user": "svc", "env": {"HOME": "/home/svc"}, "home": "/home/svc", "namespace": "same"},
        {"pid": 2, "user": "svc", "env": {"FLASHINFER_WORKSPACE_BASE": "/data"}, "namespace": "same"},
        {"pid": 3, "user": "bob", "env": None, "home": "/home/bob", "namespace": "same"},
        {"pid": 4, "user": "root", "env": {"HOME": "/root"}, "namespace": "other", "namespace_id": "mnt:[4]"},
        {
            "pid": 5,
            "user": "eve",
            "env": {},
            "home": None,
            "namespace": "same",
            "launcher": {"env": {"HOME": "/e"}},
        },
    ]
    found = cache_bases(Root(""), {"HOME": "/root"}, processes)
    assert [(one["base"], one["user"], one["pid"]) for one in found] == [
        ("/root", None, None), ("/home/svc", "svc", None), ("/data", "svc", None), ("/home/bob", "bob", None),
        ("/root", "root", 4), ("/e", "eve", None),
    ]  # fmt: skip


def test_no_cache_is_a_value(host: Host) -> None:
    (cache,) = caches({"items": [seen(host)]})
    assert (cache.exists, cache.error, cache.modules) == (False, None, ())
    assert host_facts({"caches": {"items": "x"}}).caches == ()
    assert host_facts({}).caches is None
