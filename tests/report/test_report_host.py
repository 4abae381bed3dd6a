"""One host: a sentence first, then everything that is known, and what was not examined."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from support import runs

from fleetcheck.facts.records import (
    Cache,
    Device,
    FileFact,
    FlashInfer,
    Gpus,
    GpuState,
    Process,
    System,
    Toolkit,
    Venv,
)
from fleetcheck.report import host as page
from fleetcheck.report.documents import narrowed
from fleetcheck.run import HostResult

RUN = runs.every_kind()


def shown(name: str, width: int = 0) -> str:
    return page.render(narrowed(RUN, name), width=width, colour=False)


NONE_LEFT = "8 of 8 GPUs are missing, nvidia-smi lists none"
GPUS = "8 GPUs of compute capability 12.0, ok"
WRONG = "/root/ml-env/lib/python3.11/site-packages/flashinfer/csrc, not where the package keeps them"
WELL = "sources complete, allreduce fusion off (refused)"
SENTENCES = {
    "gpu02.lab": f"is ok with one finding fusion-refused (info): {GPUS}; "
    f"/root/ml-env has FlashInfer 0.6.2, {WELL}.",
    "gpu18.lab": f"has 2 findings, the worst csrc-missing (error): {GPUS}; /root/ml-env has FlashInfer 0.6.2, "
    f"sources missing at {WRONG}, allreduce fusion off (refused); /opt/other has FlashInfer 0.6.2, {WELL}.",
    "gpu20.lab": "has one finding smi-hung (error): nvidia-smi hung; no Python environment is known.",
    "gpu21.lab": f"has one finding venv-missing (error): {GPUS}; /root/ml-env is missing.",
    "bad-timeout": "was not checked, timeout at the stage connect: timeout: the reason",
}


@pytest.mark.parametrize(("name", "sentence"), SENTENCES.items())
def test_the_sentence_comes_first(name: str, sentence: str) -> None:
    assert shown(name).splitlines()[0] == f"{name} {sentence}"


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        (
            runs.gpus(7, state="missing", pci_count=8),
            "1 of 8 GPUs is missing, nvidia-smi lists 7 GPUs of compute capability 12.0",
        ),
        (
            runs.gpus(1, state="missing", pci_count=3),
            "2 of 3 GPUs are missing, nvidia-smi lists 1 GPU of compute capability 12.0",
        ),
        (runs.gpus(0, state="missing", compute_capability=(), pci_count=8), NONE_LEFT),
        (
            runs.gpus(8, state="fault", devices=(Device(index=0, state="fault"),)),
            "1 of 8 GPUs is faulty, nvidia-smi lists 8 GPUs of compute capability 12.0",
        ),
        (
            runs.gpus(3, state="hung"),
            "nvidia-smi hung, having listed 3 GPUs of compute capability 12.0",
        ),
        (runs.gpus(0, state="no-gpu", compute_capability=()), "no GPU"),
        (runs.gpus(None, state="driver-unloaded"), "the driver is not loaded"),
    ],
)  # fmt: skip
def test_the_sentence_on_gpus_cannot_be_read_the_other_way(gpus: Gpus, said: str) -> None:
    text = page.render(runs.run(runs.host("a", gpus=gpus)), width=0, colour=False)
    assert text.startswith(f"a is ok: {said}; ")


def test_every_state_of_gpus_has_its_words() -> None:
    for state in get_args(GpuState):
        sentence = page.summary(runs.host("a", gpus=Gpus(state=state)), ())
        assert "; /root/ml-env has" in sentence


@pytest.mark.parametrize("name", [host.name for host in RUN.hosts])
def test_findings_with_their_remedy_once(name: str) -> None:
    text = shown(name)
    for finding in RUN.findings:
        if finding.host == name:
            assert finding.rule in text
            assert all(text.count(step) == 1 for step in finding.remedy)


def test_everything_that_is_known_is_shown() -> None:
    flash = FlashInfer(
        version="9.9",
        files=(FileFact(path="/f/env.py", size=77, modified_at=0.5e9),),
        constants={"NAME": "/value"},
    )
    host = runs.host(
        "a", system=System(hostname="alpha", boot_time=1e9), toolkits=(Toolkit(path="/cuda", nvcc="13.1"),),
        caches=(Cache(path="/cache", user="svc"),), processes=(Process(pid=4242, flags={"--tp": "8"}),),
        venvs=(Venv(path="/v", packages={"sglang": "0.5.5"}, flashinfer=flash, activation_matches=True),),
    )  # fmt: skip
    text = page.render(runs.run(host), width=0, colour=False)
    for known in (
        "alpha", "2001-09-09T01:46:40Z", "/cuda", "13.1", "/cache", "svc", "4242", "--tp", "sglang", "0.5.5",
        "9.9", "/f/env.py", "77", "1985-11-05T00:53:20Z", "name", "/value", "GPU-7", runs.NAME, "192.0.2.1", "rtx",
    ):  # fmt: skip
        assert known.lower() in text.lower(), known
    assert "Not examined\n  /v: fusion, torch, toolchain\n  gpus: " in text


def test_a_switch_of_a_gpu_reads_on_or_off() -> None:
    device = {"index": 0, "uuid": "GPU-7", "ecc": True, "ecc_pending": False, "mig": False, "mig_pending": True}
    host = runs.host("a", gpus=runs.gpus(1, devices=(device,)))
    text = page.render(runs.run(host), width=0, colour=False)
    head, row = (next(line for line in text.splitlines() if word in line) for word in ("ECC AFTER", "GPU-7"))
    assert re.split(" {2,}", head.strip())[-4:] == ["ECC", "ECC AFTER RESET", "MIG", "MIG AFTER RESET"]
    assert re.split(" {2,}", row.strip())[-4:] == ["on", "off", "off", "on"]


def test_the_rules_that_a_run_was_limited_to_are_told() -> None:
    run = runs.run(runs.host("a"))
    limited = run.model_copy(update={"run": run.run.model_copy(update={"select": ("gpu-*", "csrc")})})
    assert "judged by  gpu-*, csrc\n" in page.render(limited, width=0, colour=False)
    assert "judged" not in page.render(run, width=0, colour=False)


def test_a_fact_that_is_new_is_shown() -> None:
    class Newer(HostResult):
        weather: tuple[dict[str, str], ...] = ({"sky": "overcast"},)

    newer = Newer.model_validate(runs.host("a").model_dump())
    run = runs.run(newer)
    assert "Weather\n  SKY\n  overcast\n" in page.render(run, width=0, colour=False)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("gpu01.lab", "Not examined\n  system\n  caches\n  processes\n  /root/ml-env: toolchain, activation\n"),
        (
            "bad-timeout",
            "Not examined\n  whatever comes after the stage connect, where the look ended\n  system\n",
        ),
        ("bad-skipped", "Not examined\n  everything: the host was left alone\n"),
    ],
)
def test_what_was_not_examined(name: str, missing: str) -> None:
    assert missing in shown(name)


BAD = "\x1b[31m\x00\u202e\n<script>\udcff\x9b\r" + "A" * 1_000_000


def test_a_hostile_host_harms_nothing() -> None:
    flash = dict.fromkeys(("version", "csrc_dir"), BAD)
    venvs = (runs.venv(BAD, **flash, constants={BAD: (BAD,)}), *[Venv(path=BAD, packages={BAD: BAD})] * 300)
    host = runs.host(
        "a", "findings", message=BAD, detail=BAD, address=BAD, venvs=venvs,
        caches=(Cache(path=BAD, error=BAD),), processes=(Process(pid=1, flags={BAD: BAD}, title=BAD),) * 9,
        gpus=runs.gpus(driver=BAD, names=(BAD,), compute_capability=(BAD,) * 20, diagnostics=(BAD,) * 900),
    )  # fmt: skip
    found = runs.finding("a", BAD, message=BAD, remedy=(BAD,), seen={BAD: BAD})
    text = page.render(runs.run(host, findings=(found,)), width=80, colour=False)
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text) < 5_000_000


def test_colour_adds_nothing_but_colour() -> None:
    run = narrowed(RUN, "gpu18.lab")
    coloured = page.render(run, width=80, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == page.render(run, width=80, colour=False)
    assert "\x1b[" in coloured
