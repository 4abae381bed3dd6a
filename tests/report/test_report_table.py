"""The table: every host, worst first, in the width it was given, and harmless whatever the hosts said."""

from __future__ import annotations

import re

import pytest
from support import runs
from support.tables import block, lines_of, render, rows, told

from fleetcheck.facts import topology
from fleetcheck.facts.records import Device, Venv
from fleetcheck.report import table
from fleetcheck.report.text import cells
from fleetcheck.rules.finding import Waived


@pytest.mark.parametrize("width", [0, 80, 120, 200])
@pytest.mark.parametrize("wide", [False, True])
def test_every_host_has_its_row_with_its_verdict(width: int, wide: bool) -> None:
    run = runs.every_kind()
    shown = told(render(run, width, wide=wide))
    assert set(shown) == {host.name for host in run.hosts}
    rules = tuple({finding.rule for finding in run.findings})
    for host in run.hosts:
        expected = ("findings", *rules) if host.verdict == "findings" else host.verdict
        assert shown[host.name].startswith(expected)


def test_the_summary_comes_first() -> None:
    assert render(runs.every_kind()).splitlines()[0] == (
        "29 hosts: 17 ok (1 with warnings), 4 failing, 7 not checked (1 auth-failed, 1 gateway-failed, "
        "1 host-key-changed, 1 host-key-unknown, 1 probe-error, 1 timeout, 1 unreachable), 1 in maintenance; "
        "findings: 1 critical, 3 errors, 2 warnings, 16 info, 1 waived; explained by these: 1 warning"
    )
    assert render(runs.run()) == "0 hosts: 0 ok, 0 failing; findings: none\n"


def test_worst_first_and_healthy_hosts_in_one_line() -> None:
    shown = [row[0] for row in rows(render(runs.every_kind()))[1:]]
    assert shown[:5] == ["gpu19.lab", "gpu20.lab", "gpu18.lab", "gpu18.lab", "gpu21.lab"]
    assert shown.index("gpu21.lab") < shown.index("bad-unreachable") < shown.index("bad-skipped")
    assert shown[-2:] == ["gpu17.lab", "gpu[01-16].lab (16)"]
    wide = [row[0] for row in rows(render(runs.every_kind(), wide=True))[1:]]
    assert len(wide) == len(shown) + 15
    assert wide[-16:] == [f"gpu{number:02d}.lab" for number in range(1, 17)]


def test_the_cells_say_what_is_known() -> None:
    shown = {row[0] + row[4]: row for row in rows(render(runs.every_kind()))[1:]}
    csrc = "/root/ml-env/lib/python3.11/site-packages/flashinfer"
    assert shown["gpu18.lab/root/ml-env"][1:] == [
        "8× 12.0", "-", "580.95.05", "/root/ml-env", "0.6.2", f"MOVED, missing {csrc}/csrc", "off (refused)",
        "csrc-missing (error)",
    ]  # fmt: skip
    assert shown["gpu18.lab/opt/other"][-1] == "findings"
    assert shown["gpu19.lab/root/ml-env"][7] == "unsafe-patch (in use: not known)"
    assert shown["gpu20.lab-"][1:] == ["hung", "-", "580.95.05", "-", "-", "-", "-", "smi-hung (error)"]
    assert shown["gpu21.lab/root/ml-env"][5] == "venv missing"
    assert shown["bad-timeout-"][1:] == ["-", "-", "-", "-", "-", "-", "-", "timeout (why)"]
    assert shown["gpu17.lab/opt/venvs/b"][5:] == [
        "0.6.18", "complete /opt/venvs/b/lib/python3.11/site-packages/flashinfer/data/csrc", "on", "ok (warning)",
    ]  # fmt: skip


LISTED = tuple(Device(index=index, state="ok") for index in range(8))
BROKEN, LOST = Device(index=7, state="fault", note="Unknown Error"), Device(bus_id="00:17:00.0", state="missing")


@pytest.mark.parametrize(
    ("gpus", "cell"),
    [
        (runs.gpus(7, state="missing", pci_count=8), "7× 12.0, 1 of 8 missing"),
        (runs.gpus(7, state="missing"), "7× 12.0, some missing"),
        (runs.gpus(0, state="missing", compute_capability=(), pci_count=8), "8 of 8 missing"),
        (runs.gpus(7, state="missing", devices=(*LISTED[:7], LOST)), "7× 12.0, 1 of 8 missing"),
        (runs.gpus(8, state="fault", devices=(*LISTED[:7], BROKEN)), "8× 12.0, 1 of 8 faulty"),
        (runs.gpus(6, state="fault", devices=(*LISTED[:6], BROKEN, LOST)), "6× 12.0, 1 of 8 faulty, 1 missing"),
        (runs.gpus(3, state="hung"), "hung, 3 listed"),
        (runs.gpus(None, state="hung", compute_capability=()), "hung"),
        (runs.gpus(4, compute_capability=("9.0", "12.0")), "4× 9.0,12.0"),
        (runs.gpus(0, state="no-gpu", compute_capability=()), "no-gpu"),
        (runs.gpus(None, state="unknown", compute_capability=()), "unknown"),
    ],
)
def test_gpus_in_a_cell(gpus: object, cell: str) -> None:
    assert rows(render(runs.run(runs.host("a", gpus=gpus))))[1][1] == cell


FOUR = {"0-1": "NODE", "0-2": "SYS", "0-3": "SYS", "1-2": "SYS", "1-3": "SYS", "2-3": "NODE"}
BRIDGED = {pair: "NV4" if word == "NODE" else word for pair, word in FOUR.items()}


@pytest.mark.parametrize(
    ("links", "cell", "short"),
    [
        ({}, "-", "-"),
        ({"0-1": "NV18", "0-2": "NV18", "1-2": "NV18"}, "NV18", "NV18"),
        ({"0-1": "NV18", "0-2": "NV6", "1-2": "NV18"}, "NV6 (0-2)", "NV6"),
        (FOUR, "SYS (0-2 +3)", "SYS"),
        (BRIDGED, "SYS, NVLink in part (0-2 +3)", "SYS, NVLink in part"),
    ],
)
def test_the_worst_link_and_the_pairs_that_have_it(links: dict[str, str], cell: str, short: str) -> None:
    linked = runs.gpus(links=links, link=topology.worst(links), nvlink=topology.nvlink(links))
    run = runs.run(runs.host("gpu1", gpus=linked))
    header, row = rows(render(run, wide=True))
    assert row[header.index("LINK")] == cell
    asked = table.render(run, wide=False, width=16, colour=False, columns=("link",))
    assert rows(asked) == [["HOST", "LINK", "VERDICT"], ["gpu1", short, "ok"]]


def test_the_link_is_shown_where_the_paths_stay_readable() -> None:
    linked = runs.gpus(links=FOUR, link="SYS", nvlink=False)
    run = runs.run(runs.host("gpu1", gpus=linked))
    tables = {width: rows(render(run, width)) for width in range(60, 180)}
    with_link = {width for width, (header, *_) in tables.items() if "LINK" in header}
    assert with_link == set(range(min(with_link), 180))
    assert max(cells(line) for line in render(run, min(with_link)).splitlines()[2:4]) <= min(with_link)
    for width in with_link:
        header, row, *_ = tables[width]
        assert row[header.index("LINK")] in ("SYS", "SYS (0-2 +3)")
        csrc = row[header.index("CSRC")]
        assert csrc == "complete" or csrc.endswith("/site-packages/flashinfer/data/csrc")
    without = set(tables) - with_link
    assert without
    assert all("LINK SYS" in re.sub(r"\s+", " ", render(run, width)) for width in without), "all hosts have it"


def test_two_drivers_are_both_shown() -> None:
    split = runs.gpus(state="driver-mismatch", driver_userspace="570.1")
    assert rows(render(runs.run(runs.host("a", gpus=split))))[1][3] == "580.95.05/570.1"


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_the_table_fits_and_paths_keep_their_tail(width: int) -> None:
    names = [f"gpu{number:02d}" for number in range(1, 5)]
    deep = "/srv/projects/inference/environments/ml-env"
    text = render(runs.run(*(runs.host(name, venvs=(runs.venv(deep),)) for name in names)), width)
    assert max(cells(line) for line in text.split("\n\n")[1].splitlines()) <= width
    assert "ml-env" in text
    assert "Without room" not in text, "what all hosts have in common needs no column"
    header = rows(text)[0]
    for name, said in (("VENV", deep), ("DRIVER", "580.95.05")):
        assert name in header or f"{name} {said}" in text.replace("\n", " ")


MOVED = "MOVED /root/ml-env/lib/python3.11/site-packages/flashinfer/csrc"


@pytest.mark.parametrize(
    ("width", "cells"),
    [
        (0, MOVED),
        (120, "MOVED …/lib/python3.11/site-packages/flashinfer/csrc"),
        (80, "MOVED …/flashinfer/csrc"),
        (55, "MOVED"),
    ],
)
def test_whole_sources_in_another_place_never_read_as_all_well(width: int, cells: str) -> None:
    elsewhere = runs.venv(csrc_dir="/root/ml-env/lib/python3.11/site-packages/flashinfer/csrc")
    text = render(runs.run(runs.host("a", venvs=(runs.venv(),)), runs.host("b", venvs=(elsewhere,))), width)
    shown = {row[0]: row for row in rows(text)}
    assert cells in shown["b"]
    assert cells not in shown["a"]


def fusion(text: str) -> str:
    """Return the FUSION cell of the one row of a table, however many lines it takes."""
    head, *lines = lines_of(text)
    start, end = head.index("FUSION"), head.index("VERDICT")
    return " ".join(line[start:end].strip() for line in lines).strip().replace("unsafe- patch", "unsafe-patch")


@pytest.mark.parametrize("width", [0, 200, 120, 80, 60])
def test_what_is_in_use_reads_as_not_known_at_every_width(width: int) -> None:
    patched = runs.venv(verdict="unsafe-patch", effective="unknown")
    text = render(runs.run(runs.host("b", venvs=(patched,))), width)
    cell = fusion(text)
    assert cell in ("unsafe-patch (in use: not known)", "unsafe-patch, use?")
    assert ("FUSION with use?" in text) == (cell == "unsafe-patch, use?")


@pytest.mark.parametrize("width", [0, 120, 80, 60])
@pytest.mark.parametrize(
    ("verdict", "effective", "cell"),
    [
        ("unsafe-patch", "on-unvalidated", "on, unsafe-patch"), ("patched", "on-unvalidated", "on, patched"),
        ("unsafe-patch", "off", "off, unsafe-patch"), ("refused", "off", "off (refused)"),
        ("absent", "off", "off (absent)"), ("supported", "off", "off"), ("supported", "on", "on"),
        ("refused", "would-crash", "would-crash"), ("unknown", "unknown", "unknown"), ("unreadable", "off", "off"),
    ],
)  # fmt: skip
def test_an_edit_and_a_refusal_are_told_whatever_the_server_does(
    width: int, verdict: str, effective: str, cell: str
) -> None:
    venv = runs.venv(verdict=verdict, effective=effective)
    assert fusion(render(runs.run(runs.host("b", venvs=(venv,))), width)) == cell


LISTED_NONE = {"state": "hung", "count": None, "compute_capability": ()}
SEEN = (Device(compute_capability="12.0", compute_capability_basis="guessed"),) * 8


@pytest.mark.parametrize(
    ("verdict", "effective", "cell"),
    [
        ("supported", "unknown", "supported if 12.0, use?"), ("refused", "off", "off (refused if 12.0)"),
        ("supported", "on", "on, supported if 12.0"), ("supported", "off", "off"),
        ("unsafe-patch", "on-unvalidated", "on, unsafe-patch if 12.0"),
        ("refused", "would-crash", "would-crash if 12.0"),
        ("absent", "off", "off (absent)"), ("unknown", "unknown", "unknown"),
    ],
)  # fmt: skip
def test_what_rests_on_gpus_that_nobody_read_is_no_fact(verdict: str, effective: str, cell: str) -> None:
    venv = runs.venv(verdict=verdict, effective=effective)
    for devices, kind in ((SEEN, "12.0"), ((), "as expected")):
        host = runs.host("b", venvs=(venv,), gpus=runs.gpus(**LISTED_NONE, devices=devices))
        assert fusion(render(runs.run(host), 80)) == cell.replace("12.0", kind)


def test_among_errors_what_costs_most_comes_first() -> None:
    costs = ("fusion-unsafe-patch", "smi-hung", "venv-missing", "env-edited", "csrc-decoy", "driver-version")
    hosts = tuple(runs.host(f"h{n}", "findings") for n in range(6))
    found = tuple(runs.finding(f"h{n}", rule) for n, rule in enumerate(reversed(costs)))
    noted = (runs.host("w1"), runs.host("w2"))
    found += (runs.finding("w1", "persistence-off", "warning"), runs.finding("w2", "fusion-patched", "warning"))
    run = runs.run(*noted, *hosts, findings=found)
    for wide in (False, True):
        text = render(run, wide=wide)
        shown = rows(text)[1:]
        assert [row[-1].removesuffix(" (error)") for row in shown[:6]] == list(costs)
        assert [row[0] for row in shown[6:]] == (["w2", "w1"] if wide else ["w1-2"])[: len(shown) - 6] or not wide
        told = re.findall(r"^(?:ERROR|WARNING)  (\S+)", text, re.MULTILINE)
        assert told == [*costs, "fusion-patched", "persistence-off"]


def test_a_row_is_named_by_the_costliest_of_its_gravest() -> None:
    found = [runs.finding("a", rule) for rule in ("csrc-decoy", "driver-version", "smi-hung", "env-edited")] + [
        runs.finding("a", "fusion-would-crash", cause="env-edited"),
        runs.finding("a", "fusion-patched", "warning"),
    ]
    run = runs.run(runs.host("a", "findings"), findings=tuple(found))
    assert rows(render(run))[1][-1] == "smi-hung (error) +4"


def test_the_summary_counts_apart_what_others_explain() -> None:
    found = (
        runs.finding("a", "root"), runs.finding("a", "leaf", cause="root"), runs.finding("a", "far", cause="leaf"),
        runs.finding("a", "odd", "warning", cause="not-there"), runs.finding("b", "note", "info"),
        runs.finding("c", "small", "warning"),
    )  # fmt: skip
    run = runs.run(runs.host("a", "findings"), runs.host("b"), runs.host("c"), findings=found)
    assert table.summary(run) == (
        "3 hosts: 2 ok (1 with warnings), 1 failing; findings: 1 error, 2 warnings, 1 info; "
        "explained by these: 2 errors"
    )


def test_prose_is_broken_and_a_command_is_not() -> None:
    command = "/opt/ml-env/bin/python -m pip freeze > " + "a/long/path/" * 8
    restart = "Restart the processes that serve from this environment; until then they keep what they loaded."
    steps = (
        f"{restart} (restarts serving)", command,
        f"Or move to 0.6.17 or newer, with the release that pins it: {command}", f"Or: {command}",
    )  # fmt: skip
    found = (runs.finding("a", remedy=steps),)
    for width in (80, 120):
        lines = block(render(runs.run(runs.host("a", "findings"), findings=found), width), "ERROR").splitlines()
        assert all(len(line) <= width for line in lines if "python" not in line)
        start = lines.index("    remedy (on the host)") + 1
        assert lines[start].startswith("      1. Restart the processes")
        assert lines[start + 1].startswith("         ")
        assert lines[start + 1].endswith("(restarts serving)")
        assert lines[start + 2 :] == [
            f"      2. {command}", "      3. Or move to 0.6.17 or newer, with the release that pins it:",
            f"         {command}", f"      4. Or: {command}",
        ]  # fmt: skip


def test_the_path_of_sources_in_their_place_gives_way_first() -> None:
    linked = runs.gpus(links=FOUR, link="SYS", nvlink=False)
    moved = runs.venv(csrc_dir="/root/ml-env/lib/python3.11/site-packages/flashinfer/csrc")
    used = runs.venv(verdict="unsafe-patch", effective="unknown")
    hosts = (runs.host("a", venvs=(used,), gpus=linked), runs.host("b", venvs=(moved,), gpus=linked))
    kinds = set()
    for width in range(60, 240):
        head, *shown = rows(render(runs.run(*hosts), width))
        csrc = {row[head.index("CSRC")].partition(" ")[::2] for row in shown if "CSRC" in head and len(row) > 5}
        whole = "LINK" in head and {(row[head.index("LINK")], row[head.index("FUSION")]) for row in shown} == {
            ("SYS (0-2 +3)", "unsafe-patch (in use: not known)"),
            ("SYS (0-2 +3)", "off (refused)"),
        }
        told = ("complete", "") not in csrc and any(state == "complete" for state, _ in csrc)
        assert whole or not told, "the path stands where all else is whole"
        kinds.add((whole, told))
    assert kinds == {(True, True), (True, False), (False, False)}


def test_the_verdict_names_the_gravest_rule_and_counts_the_others() -> None:
    found = (
        runs.finding("a", "first", "warning"), runs.finding("a", "worst", "error"),
        runs.finding("a", "follows", "error", cause="worst"), runs.finding("a", "note", "info"),
    )  # fmt: skip
    run = runs.run(runs.host("a", "findings"), findings=found)
    assert rows(render(run))[1][-1] == "worst (error) +1"
    assert rows(render(run, 60))[1][-1].startswith("worst")
    assert rows(render(run, 20))[1][-1] == "worst +1"
    assert render(run).endswith("\nOne host: fleetcheck show HOST -i INVENTORY; one rule: fleetcheck rules RULE\n")


def test_a_run_by_some_rules_says_that_the_others_were_not_applied() -> None:
    run = runs.run(runs.host("a"))
    whole = render(run)
    assert "Judged" not in whole
    info = run.run.model_copy(update={"select": ("gpu-*",), "ignore": ("gpu-name", "fleet")})
    text = render(run.model_copy(update={"run": info}))
    assert text.splitlines()[1] == (
        "Judged by gpu-* only (--select), without gpu-name, fleet (--ignore); the other rules were not applied, "
        'so that "ok" speaks of these alone.'
    )


def test_what_was_not_checked_stands_before_the_findings_with_a_next_step() -> None:
    hosts = (runs.host("a", "findings"), runs.host("b", "unreachable", detail="refused"))
    blocks = render(runs.run(*hosts, findings=(runs.finding("a"),))).split("\n\n")
    assert [part.split()[0] for part in blocks[2:]] == ["Not", "ERROR", "One"]
    assert blocks[2].endswith("  step by step: fleetcheck doctor HOST -i INVENTORY")


def test_a_remedy_of_several_groups_stands_once_for_all() -> None:
    said = [runs.finding(f"gpu{n}", message=f"at {n}", remedy=("do this",)) for n in range(3)]
    hosts = [runs.host(f"gpu{n}", "findings") for n in range(4)]
    text = block(render(runs.run(*hosts, findings=tuple(said))), "ERROR")
    assert text.endswith("\n    at 2\n  remedy for all 3 hosts (on the host)\n    1. do this")
    other = runs.finding("gpu3", message="at 3", remedy=("Correct csrc_dir in the inventory.",))
    text = block(render(runs.run(*hosts, findings=(*said, other))), "ERROR")
    assert "\n  remedy for these 3 hosts (on the host)\n    1. do this\n  gpu3\n" in text
    assert text.endswith("\n    remedy (here, in the inventory)\n      1. Correct csrc_dir in the inventory.")


def test_several_consequences_are_told_each() -> None:
    found = [runs.finding("a", "follows", "warning", cause="root", message=f"unseen {n}") for n in range(5)]
    run = runs.run(runs.host("a", "findings"), findings=(runs.finding("a", "root"), *found))
    text = block(render(run), "ERROR")
    told = "\n".join(f"    unseen {n}" for n in range(3))
    assert f"  explains follows (warning) on a\n{told}\n    and 2 more, shown by --wide" in text
    assert "unseen 4" in render(run, wide=True)


def test_a_table_that_cannot_fit_keeps_the_names() -> None:
    name = "a-very-long-host-name-that-nobody-can-shorten.rack7.example.net"
    text = render(runs.run(runs.host(name)), 40)
    assert name in text
    assert "VENV /root/ml-env" in text
    assert rows(text)[0] == ["HOST", "GPUS", "CSRC", "VERDICT"]
    other = runs.host("b", venvs=(runs.venv("/v"),), gpus=runs.gpus(driver="1"))
    text = render(runs.run(runs.host(name), other), 40)
    assert name in text
    assert "Without room here: DRIVER, FLASHINFER, FUSION, VENV. See --wide." in text.replace("\n", " ")


def test_a_long_node_set_goes_over_several_lines() -> None:
    names = [f"gpu{number:03d}" for number in range(1, 400, 2)]
    text = render(runs.run(*map(runs.host, names)), 100)
    assert max(cells(line) for line in text.splitlines()) <= 100
    assert told(text) == dict.fromkeys(names, "ok")
    assert "gpu001  " in text
    assert "+199 [1]" in text
    few = names[:12]
    text = render(runs.run(*map(runs.host, few)), 100)
    assert "share a row" not in text, "a few lines of names stand in the row"
    assert told(text) == dict.fromkeys(few, "ok")


def test_wide_characters_keep_the_columns() -> None:
    text = render(runs.run(runs.host("a", venvs=(runs.venv("/opt/模型"), runs.venv("/opt/model")))))
    lines = text.split("\n\n")[1].splitlines()
    starts = {cells(line[: line.index("0.6.2")]) for line in lines[1:]}
    assert starts == {cells(lines[0][: lines[0].index("FLASHINFER")])}


def test_findings_fold_hosts_and_give_the_remedy_once() -> None:
    found = tuple(
        runs.finding(
            f"gpu{number}", venv="/v", expected="/a", seen=["b"], basis="guessed", remedy=("do this", "then")
        )
        for number in range(1, 6)
    )
    text = render(runs.run(*(runs.host(f"gpu{number}", "findings") for number in range(1, 6)), findings=found))
    assert block(text, "ERROR") == "\n".join([
        "ERROR  csrc-missing  5 hosts", "  gpu[1-5]  /v", "    csrc-missing says so",
        "    expected  /a", "    seen      b", "    basis     guessed", "    remedy (on the host)",
        "      1. do this", "      2. then",
    ])  # fmt: skip
    assert text.count("do this") == 1


def test_consequences_stand_under_their_root_and_lift_it() -> None:
    found = (
        runs.finding("a", "root", "warning", venv="/v"),
        runs.finding("a", "middle", "error", venv="/v", cause="root"),
        runs.finding("a", "leaf", "critical", venv="/v", cause="middle"),
        runs.finding("a", "other-venv", "info", venv="/w", cause="root"),
        runs.finding("b", "middle", "error", cause="root"),
    )
    text = render(runs.run(runs.host("a"), runs.host("b"), findings=found))
    assert "\n  explains middle (error) on a\n    middle says so\n  explains leaf (critical) on a\n" in block(
        text, "CRITICAL  root"
    )
    assert "warning: root says so" in block(text, "CRITICAL  root")
    assert "  b\n" in block(text, "ERROR  middle")
    assert "  a  /w\n" in block(text, "INFO  other-venv")


def test_a_circle_of_causes_hides_nothing() -> None:
    found = (
        runs.finding("a", "one", cause="two"), runs.finding("a", "two", cause="one"),
        runs.finding("a", "self", cause="self"), runs.finding("a", "three", cause="one"),
    )  # fmt: skip
    text = render(runs.run(runs.host("a", "findings"), findings=found))
    for rule in ("one", "two", "three", "self"):
        assert f"ERROR  {rule}\n  a\n    {rule} says so" in text


def test_a_waived_root_does_not_take_its_consequence_along() -> None:
    waived = Waived(reason="known", until="2031-01-01")
    found = (runs.finding("a", "root", waived=waived), runs.finding("a", "leaf", cause="root"))
    text = render(runs.run(runs.host("a", "findings"), findings=found))
    assert "ERROR  leaf\n  a\n" in text
    assert "ERROR  root" not in text
    assert "Waived\n  root, until 2031-01-01, known: a" in text


def test_many_different_messages_are_counted_and_every_host_is_named() -> None:
    names = [f"gpu{number:02d}" for number in range(1, 31)]
    found = tuple(runs.finding(name, message=f"at {name}") for name in names)
    hosts = [runs.host(name, "findings") for name in names]
    text = block(render(runs.run(*hosts, findings=found)), "ERROR")
    assert "  and 22 more, shown by --wide: gpu[09-30]" in text
    wide = block(render(runs.run(*hosts, findings=found), wide=True), "ERROR")
    assert all(f"at {name}" in wide for name in names)


def test_hosts_not_checked_are_grouped_with_what_was_said() -> None:
    hosts = [
        runs.host(f"gpu{n}", "unreachable", detail="refused", message=f"gpu{n}: refused") for n in range(1, 7)
    ]
    text = block(render(runs.run(*hosts)), "Not checked")
    assert "  unreachable (refused, stage connect): gpu[1-6]\n    gpu1: refused\n" in text
    assert text.endswith(
        "    and 3 more messages, shown by --wide\n  step by step: fleetcheck doctor HOST -i INVENTORY"
    )
    assert "gpu6: refused" in render(runs.run(*hosts), wide=True)


def test_an_interrupted_run_says_so_first() -> None:
    assert render(runs.run(runs.host("a"), complete=False)).startswith("Interrupted: ")


def test_commands_are_never_broken() -> None:
    command = "cp -a " + " ".join(f"/a/path/{number}" for number in range(40))
    text = render(runs.run(runs.host("a"), findings=(runs.finding("a", remedy=(command,)),)), 80)
    assert command in text


BAD = "\x1b[31m\x00\u202e=cmd()\n<script>\udcff\x9b\r" + "A" * 1_000_000


@pytest.mark.parametrize("width", [0, 80])
def test_a_hostile_host_harms_nothing(width: int) -> None:
    flash = dict.fromkeys(("version", "csrc_dir"), BAD)
    bad = runs.host(
        "gpu1", "findings", message=BAD, detail=BAD, address=BAD, venvs=(runs.venv(BAD, **flash), Venv(path=BAD)),
        gpus=runs.gpus(driver=BAD, names=(BAD,), compute_capability=(BAD,) * 20),
    )  # fmt: skip
    lost = runs.host("gpu2", "probe-error", message=BAD, detail=BAD)
    odd = runs.host("x" + BAD[:40])
    text = dict.fromkeys(("message", "venv", "gpu", "expected", "reference", "cause"), BAD)
    found = runs.finding("gpu1", remedy=(BAD, BAD), seen={BAD: [BAD]}, waived=None, rule=BAD, **text)
    waived = runs.finding("gpu1", waived=Waived(reason=BAD, until=BAD))
    shown = render(runs.run(bad, lost, odd, findings=(found, waived)), width)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert len(shown) < 100_000
    assert "gpu1" in shown
    assert "gpu2" in shown


def test_colour_adds_nothing_but_colour() -> None:
    run = runs.every_kind()
    assert re.sub(r"\x1b\[[0-9;]*m", "", render(run, 120, colour=True)) == render(run, 120)
    assert "\x1b[" in render(run, 120, colour=True)
