"""What sets hosts apart: flat facts, folds, two hosts compared, and the commands that show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.runs import finding, gpus, host, run, venv
from test_judge import look

from fleetcheck.agent.evidence import Evidence
from fleetcheck.cli.main import run as command
from fleetcheck.differences import Difference, differences, flat, fold
from fleetcheck.facts.records import Device, System
from fleetcheck.inventory.model import Expect, Target
from fleetcheck.judge import Policy, new_run
from fleetcheck.keyfiles import diffs
from fleetcheck.recording import Writer
from fleetcheck.report import fold as page
from fleetcheck.report.json import render as document

GATE = "def gen_trtllm_comm_module():\n    supported_major_versions=[{majors}]\n"


def test_volatile_facts_and_identities_are_left_out() -> None:
    def made(number: int) -> dict[str, str]:
        device = Device(index=0, uuid=f"GPU-{number}", serial=str(number), bus_id="00000000:05:00.0", state="ok")
        system = System(hostname=f"h{number}", machine_id=str(number), boot_time=float(number), kernel="6.1")
        return flat(
            host(f"gpu{number}", gpus=gpus(devices=(device,)), system=system, seconds=number, attempts=number)
        )

    assert made(1) == made(2)
    assert made(1)["system.kernel"] == "6.1"
    assert made(1)["gpus.devices[00000000:05:00.0].state"] == "ok"


def test_facts_have_keys_that_say_where_they_are() -> None:
    facts = flat(host("gpu01", venvs=(venv("/opt/a"), venv("/opt/b", version="0.6.18"))))
    assert facts["venvs[/opt/b].flashinfer.version"] == "0.6.18"
    assert facts["venvs[/opt/a].fusion.gate"] == "9, 10"
    assert facts["gpus.driver"] == "580.95.05"


def test_the_order_of_a_list_is_no_difference() -> None:
    one = flat(host("gpu01", venvs=(venv("/opt/a"), venv("/opt/b"))))
    assert one == flat(host("gpu02", venvs=(venv("/opt/b"), venv("/opt/a"))))


def test_a_difference_has_both_sides() -> None:
    before = flat(host("gpu01"))
    after = flat(host("gpu02", gpus=gpus(driver="590.1", link="PHB")))
    assert differences(before, after) == (
        Difference("gpus.driver", "580.95.05", "590.1"), Difference("gpus.link", None, "PHB"),
    )  # fmt: skip
    assert differences(before, before) == ()


def folded() -> Any:
    other = gpus(driver="590.1")
    return fold([
        host("gpu03", gpus=other), *(host(f"gpu1{number}") for number in range(4)), host("gpu04", gpus=other),
        host("gpu05", "unreachable"),
    ])  # fmt: skip


def test_equal_hosts_fold_and_the_largest_comes_first() -> None:
    first, second = folded()
    assert first.hosts == ("gpu10", "gpu11", "gpu12", "gpu13")
    assert first.differences == ()
    assert second.hosts == ("gpu03", "gpu04")
    assert [one.key for one in second.differences] == ["gpus.driver"]


def test_a_fold_reads_as_a_diff() -> None:
    text = page.render(folded(), wide=False, colour=False)
    assert "gpu[10-13] (4)" in text
    assert "gpu[03-04] (2)\n  - gpus.driver  580.95.05\n  + gpus.driver  590.1\n" in text
    assert page.render((), wide=False, colour=False).startswith("No host was checked")
    assert "2 hosts have the same facts: gpu[01-02]" in page.render(
        fold([host("gpu01"), host("gpu02")]), wide=False, colour=False
    )


def test_hosts_of_which_no_two_are_equal_are_no_groups() -> None:
    alone = fold([host(f"gpu{number}", gpus=gpus(driver=f"59{number}.1")) for number in range(3)])
    text = page.render(alone, wide=False, colour=False)
    assert text == "Fold  all hosts differ: gpu[0-2]; use fleetcheck compare A B\n"


def test_a_record_that_one_host_lacks_is_one_line() -> None:
    gone = venv().model_copy(update={"flashinfer": None})
    _, other = fold([host("gpu01"), host("gpu02"), host("gpu03", venvs=(gone,))])
    short = page.lines(other.differences, wide=False, colour=False)
    whole = page.lines(other.differences, wide=True, colour=False)
    assert short == [f"  - venvs[/root/ml-env].flashinfer  0.6.2, and {len(whole) - 1} more facts"]
    assert len(whole) > 3


def test_gpus_that_differ_alike_are_one_line() -> None:
    bus = [f"00000000:0{number}:00.0" for number in range(1, 9)]
    ok, bad = (tuple(Device(bus_id=one, state=state) for one in bus) for state in ("ok", "fault"))
    _, other = fold(
        [host("a", gpus=gpus(devices=ok)), host("b", gpus=gpus(devices=ok)), host("c", gpus=gpus(devices=bad))]
    )
    assert page.lines(other.differences, wide=False, colour=False) == [
        "  - gpus.devices[8 of them].state  ok", "  + gpus.devices[8 of them].state  fault",
    ]  # fmt: skip


def test_what_a_host_says_does_not_act_on_the_terminal() -> None:
    found = differences(flat(host("a")), flat(host("b", gpus=gpus(driver="\x1b[31m\n- gpus.link  x"))))
    assert "\x1b" not in "".join(page.lines(found, wide=True, colour=False))
    assert all("\n" not in line for line in page.lines(found, wide=True, colour=False))


def with_file(name: str, majors: str, record: str, **more: Any) -> Evidence:
    text = GATE.format(majors=majors)
    file = {
        "path": "/v/fi/jit/comm.py",
        "name": "jit/comm.py",
        "sha256": f"{majors}",
        "record": record,
        "text": text,
    }
    part = {"path": "/v", "packages": {"flashinfer": {"files": [{**file, **more}]}}}
    return Evidence(name, "checked", parts={**look(name).parts, "venv/0": part})


def test_the_text_of_a_changed_file_is_a_diff() -> None:
    ((title, lines),) = diffs(with_file("a", "9, 10", "match"), with_file("b", "9, 10, 12", "mismatch"))
    assert title == "flashinfer/jit/comm.py in /v"
    assert "-    supported_major_versions=[9, 10]" in lines
    assert "+    supported_major_versions=[9, 10, 12]" in lines


def test_files_of_two_releases_are_not_shown() -> None:
    assert not list(diffs(with_file("a", "9", "match"), with_file("b", "9, 12", "match")))
    assert not list(diffs(with_file("a", "9", "mismatch"), with_file("b", "9", "mismatch")))


def test_a_file_without_text_is_named() -> None:
    ((_, lines),) = diffs(with_file("a", "9", "match"), with_file("b", "9, 12", "mismatch", text=None))
    assert lines == ["its text is not part of the evidence of both hosts"]


@pytest.mark.parametrize(
    "part", [None, [], {"path": 3}, {"path": "/v", "packages": {"flashinfer": {"files": [1, {"name": []}]}}}]
)
def test_hostile_evidence_is_left_out(part: Any) -> None:
    assert not list(diffs(Evidence("a", "checked", parts={"venv/0": part}), with_file("b", "9", "mismatch")))


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A recording of two hosts, one of them with a changed file and a GPU less."""
    path = tmp_path / "evidence.jsonl.gz"
    targets = [Target(name=name, expect=Expect(gpus=8)) for name in ("gpu01", "gpu02")]
    info, writer = new_run("test"), Writer(path)
    writer.begin(info, Policy(), targets)
    writer.host(with_file("gpu01", "9, 10", "match"))
    changed = with_file("gpu02", "9, 10, 12", "mismatch")
    writer.host(Evidence("gpu02", "checked", parts={**changed.parts, "smi": look("gpu02", 7).parts["smi"]}))
    writer.end("2030-01-01T00:00:00.000Z", complete=True)
    return path


def test_command_compares_hosts_of_a_recording(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["compare", "gpu01", "gpu02", "--run", str(recorded)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("- gpu01\n+ gpu02\n")
    assert "  - gpus.count  8\n  + gpus.count  7\n" in out
    assert "+    supported_major_versions=[9, 10, 12]" in out
    assert command(["compare", "gpu01", "gpu02", "--run", str(recorded), "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["hosts"] == ["gpu01", "gpu02"]
    assert {"fact": "gpus.count", "before": "8", "after": "7"} in told["differences"]
    assert told["files"][0]["file"] == "flashinfer/jit/comm.py in /v"


def test_command_compares_hosts_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    hosts = [
        host("gpu01"),
        host("gpu02"),
        host("gpu03", gpus=gpus(7)),
        host("bad", "unreachable", message="no route"),
    ]
    path.write_text(document(run(*hosts)))
    assert command(["compare", "gpu01", "gpu02", "--run", str(path)]) == 0
    assert "No fact that can be compared differs." in capsys.readouterr().out
    assert command(["compare", "gpu01", "gpu03", "--run", str(path)]) == 1
    assert command(["compare", "gpu01", "bad", "--run", str(path)]) == 2
    assert "bad: not checked: no route" in capsys.readouterr().err
    assert command(["compare", "gpu01", "gpu01", "--run", str(path)]) == 2
    assert command(["compare", "gpu01", "gpu09", "--run", str(tmp_path / "none.json")]) == 2
    assert command(["compare", "gpu01", "gpu02", "--run", str(path), "-i", "x.yaml"]) == 2


def test_replay_selects_ignores_and_folds(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["replay", str(recorded), "--select", "gpu-count", "--fold"]) == 1
    out = capsys.readouterr().out
    assert "gpu-count" in out
    assert "Fold  2 groups of equal hosts" in out
    assert command(["replay", str(recorded), "--ignore", "gpu,policy,venv,fleet", "--ignore", "csrc-*"]) == 0
    assert "Fold" not in capsys.readouterr().out
    assert command(["replay", str(recorded), "--select", "gpu-cuont"]) == 2
    assert "did you mean gpu-count" in capsys.readouterr().err
    assert command(["replay", str(recorded), "--fold", "--format", "json", "--select", "gpu-count"]) == 1
    assert {one["rule"] for one in json.loads(capsys.readouterr().out)["findings"]} == {"gpu-count"}


def test_a_suspicious_run_says_so_before_the_hosts() -> None:
    from fleetcheck.report.table import render

    told = (finding("gpu01", severity="critical"), finding(None, "fleet-suspicious", "warning"))
    text = render(run(host("gpu01", "findings"), findings=told), wide=False, width=100, colour=False)
    assert text.index("fleet-suspicious") < text.index("HOST") < text.index("csrc-missing")
