"""Every way in which FlashInfer comes into an environment, or is left in it: each has its own right answer."""

from __future__ import annotations

import shutil

import pytest
from layouts import (
    CHECKOUT,
    EDITABLE,
    REFUSED,
    STOCK,
    SUPPORTED,
    Layout,
    Told,
    checkout,
    companion,
    editable,
    entering,
    fired,
    linked,
    metadata,
    said,
    stock,
)
from support import wheels
from support.workshop import GATE, WIDE_GATE, Built, Workshop

from fleetcheck.demo.tree import Environment

LAYOUTS: dict[str, Layout] = {}
layout = entering(LAYOUTS)


@layout("fusion-refused", **REFUSED)
def l1_stock_wheel(shop: Workshop, built: Built, path: str) -> Environment:
    return stock(shop, built, path)


@layout(
    "fusion-unsafe-patch",
    "package-modified",
    **{**REFUSED, "gate": (9, 10, 12), "verdict": "unsafe-patch", "effective": "unknown"},
)
def l2_gate_only_patch(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    wheels.edit(made.flashinfer / "jit/comm.py", GATE, WIDE_GATE, count=1)
    return made


@layout(**SUPPORTED)
def l3_stock_0_6_18(shop: Workshop, built: Built, path: str) -> Environment:
    return stock(shop, built, path, "0.6.18")


@layout(
    version="0.1.6", csrc_dir=None, csrc_state="unknown", gate_state="absent", verdict="absent", effective="off"
)
def l7_before_jit(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    rows = ["flashinfer/__init__.py,,"]
    (made.site / "flashinfer").mkdir()
    (made.site / "flashinfer/__init__.py").write_text("")
    for name in ("_kernels", "_decode_kernels", "_prefill_kernels"):
        (made.site / f"flashinfer/{name}.cpython-312-x86_64-linux-gnu.so").write_bytes(b"\x7fELF")
    metadata(made, "flashinfer", "0.1.6", rows)
    return made


@layout("fusion-refused", "csrc-outside-venv", **EDITABLE)
def l8_editable_by_finder(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    repo = checkout(shop, built, path, data=True)
    finder = "__editable___flashinfer_python_0_6_2_finder"
    (made.site / f"{finder}.py").write_text(
        "from __future__ import annotations\nimport sys\nfrom importlib.util import spec_from_file_location\n\n"
        f"MAPPING: dict[str, str] = {{'flashinfer': {str(repo / 'flashinfer')!r}}}\n"
        "NAMESPACES: dict[str, list[str]] = {}\n\n\nclass _EditableFinder:\n    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n        if name in MAPPING:\n"
        "            return spec_from_file_location(name, MAPPING[name] + '/__init__.py')\n\n\n"
        "def install():\n    sys.meta_path.append(_EditableFinder)\n"
    )
    (made.site / "__editable__.flashinfer_python-0.6.2.pth").write_text(f"import {finder}; {finder}.install()\n")
    editable(made, [f"{finder}.py,,", "__editable__.flashinfer_python-0.6.2.pth,,"])
    return made


@layout("fusion-refused", "csrc-outside-venv", **EDITABLE)
def l8_editable_by_path(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    repo = checkout(shop, built, path, data=True)
    (made.site / "__editable__.flashinfer_python-0.6.2.pth").write_text(f"{repo}\n")
    editable(made, ["__editable__.flashinfer_python-0.6.2.pth,,"])
    return made


@layout("csrc-missing", "fusion-refused", **{**CHECKOUT, "csrc_state": "missing"})
def l9_bare_checkout(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    repo = checkout(shop, built, path, data=False)
    (made.site / "checkout.pth").write_text(f"{repo}\n")
    return made


@layout("csrc-missing", "fusion-refused", **{**CHECKOUT, "csrc_state": "empty"})
def l9_bare_checkout_after_an_import(shop: Workshop, built: Built, path: str) -> Environment:
    made = l9_bare_checkout(shop, built, path)
    built.tree.folder(f"/root/src{path.replace('/', '-')}/flashinfer/data/csrc")
    return made


@layout("fusion-refused", "csrc-decoy", **REFUSED)
def l10_wrong_path_victim(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    (made.flashinfer / "csrc").mkdir()
    shutil.copy(made.flashinfer / "data/csrc/trtllm_allreduce.cu", made.flashinfer / "csrc")
    return made


@layout("flashinfer-remnant", state="remnant")
def l11_remnant(shop: Workshop, built: Built, path: str) -> Environment:
    made = shop.environment(built, None, path)
    (made.site / "flashinfer/data/csrc").mkdir(parents=True)
    return made


@layout(
    "flashinfer-mixed",
    "package-modified",
    "fusion-refused",
    version="0.6.18",
    gate=(9, 10),
    verdict="refused",
    csrc_state="complete",
)
def l12_half_upgrade(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path, "0.6.18")
    shutil.copytree(
        shop.unpacked["0.6.2"] / "flashinfer_python-0.6.2.dist-info",
        made.site / "flashinfer_python-0.6.2.dist-info",
    )
    newer = made.site / "flashinfer_python-0.6.18.dist-info/RECORD"
    newer.touch()
    old = made.flashinfer / "jit/comm.py"
    old.unlink()
    shutil.copy(shop.unpacked["0.6.2"] / "flashinfer/jit/comm.py", old)
    return made


@layout(
    "basis-disagrees",
    "fusion-refused",
    version="0.6.2",
    recorded_version="0.6.18",
    csrc_state="complete",
    verdict="refused",
)
def l12_metadata_alone_upgraded(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    info = made.site / "flashinfer_python-0.6.2.dist-info"
    text = (info / "METADATA").read_text().replace("Version: 0.6.2", "Version: 0.6.18", 1)
    info.rename(made.site / "flashinfer_python-0.6.18.dist-info")
    (made.site / "flashinfer_python-0.6.18.dist-info/METADATA").unlink()
    (made.site / "flashinfer_python-0.6.18.dist-info/METADATA").write_text(text)
    return made


@layout("fusion-refused", "csrc-outside-venv", **REFUSED)
def l13_links_of_uv(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    linked(built, made, "x")
    return made


@layout("fusion-refused", "cubins-lack-arch", **REFUSED, cubins={"100": 2})
def l14_companions_that_fit(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    cubins = companion(made, "flashinfer-cubin", "0.6.2") / "cubins/fmha"
    cubins.mkdir(parents=True)
    for name in ("fmhaSm100aKernel_Q.cubin", "fmha_sm100f_V.cubin"):
        (cubins / name).write_bytes(b"\x7fELF")
    companion(made, "flashinfer-jit-cache", "0.6.2+cu130")
    return made


@layout("fusion-refused", "companion-mismatch", **REFUSED)
def l14_companion_of_another_release(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    companion(made, "flashinfer-jit-cache", "0.6.1+cu130")
    return made


@layout(
    "fusion-unsafe-patch",
    "package-modified",
    "fusion-prebuilt-wins",
    **{**STOCK, "gate": (9, 10, 12), "verdict": "unsafe-patch"},
)
def l14_jit_cache_before_a_patch(shop: Workshop, built: Built, path: str) -> Environment:
    made = l2_gate_only_patch(shop, built, path)
    module = companion(made, "flashinfer-jit-cache", "0.6.2+cu130") / "jit_cache/trtllm_comm"
    module.mkdir(parents=True)
    (module / "trtllm_comm.so").write_bytes(b"\x7fELF")
    return made


@layout(
    "fusion-gate-unreadable",
    "package-modified",
    **{**STOCK, "gate": None, "gate_state": "unreadable", "verdict": "unreadable"},
)
def l15_syntax_error(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    wheels.edit(made.flashinfer / "jit/comm.py", GATE, GATE.replace("]", ")"), count=1)
    return made


@layout(
    "fusion-gate-unreadable",
    "package-modified",
    **{**STOCK, "gate": None, "gate_state": "unreadable", "verdict": "unreadable"},
)
def l15_list_behind_a_name(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    wheels.edit(made.flashinfer / "jit/comm.py", GATE, "supported_major_versions=MAJORS", count=1)
    return made


@layout("fusion-refused", "env-edited", "csrc-unexpected", "csrc-missing", **{**REFUSED, "csrc_state": "missing"})
def l15_env_edited(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    wheels.edit(
        made.flashinfer / "jit/env.py", '_package_root / "data" / "csrc"', '_package_root / "csrc"', count=1
    )
    return made


@layout("fusion-refused", **REFUSED, prebuilt=("P/data/aot/norm",))
def aot_wheel(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    (made.flashinfer / "data/aot/norm").mkdir(parents=True)
    (made.flashinfer / "data/aot/norm/norm.so").write_bytes(b"\x7fELF")
    return made


# What the activation puts in front is imported, so it is what is told; the environment's own copy is hidden by it.
@layout("fusion-refused", "csrc-shadowed", "csrc-outside-venv", **CHECKOUT, csrc_state="complete")
def behind_pythonpath(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    repo = checkout(shop, built, path, data=True)
    with (made.bin / "activate").open("a") as script:
        script.write(f"\nPYTHONPATH={repo}:/nowhere\nexport PYTHONPATH\n")
    return made


@layout("fusion-refused", **REFUSED)
def conda_prefix(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, path)
    (made.real / "conda-meta").mkdir()
    return made


@layout("fusion-refused", **REFUSED)
def environment_behind_a_link(shop: Workshop, built: Built, path: str) -> Environment:
    made = stock(shop, built, f"/data{path}")
    link = built.tree.place(path)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(made.real)
    return made


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_said_of_it(told: Told, name: str) -> None:
    said(told, name, LAYOUTS[name])


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_fires_on_it(told: Told, name: str) -> None:
    fired(told, name, LAYOUTS[name])


def test_nothing_of_them_was_executed(told: Told) -> None:
    assert told.executed == []
