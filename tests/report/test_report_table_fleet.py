"""The table of a fleet as one finds it: it fits, names what is wrong with each host, and says nothing twice."""

from __future__ import annotations

import pytest
from support import mixed_fleet, runs
from support.tables import block, render, rows, told

from fleetcheck.report.text import cells
from fleetcheck.run import Run


@pytest.fixture(scope="module", params=[40, 1000])
def mixed(request: pytest.FixtureRequest) -> Run:
    run: Run = mixed_fleet.fleet(request.param)
    return run


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 200])
def test_a_mixed_fleet_fits_and_names_what_is_wrong_with_each_host(mixed: Run, width: int) -> None:
    text = render(mixed, width)
    before, _, _ = text.partition("\n\nNot checked")
    assert max(map(cells, before.splitlines())) <= width
    shown = told(text)
    assert set(shown) == {host.name for host in mixed.hosts}
    roots = {host.name: set[str]() for host in mixed.hosts}
    for one in mixed.findings:
        if one.host is not None and one.severity == "error" and one.cause is None:
            roots[one.host].add(one.rule)
    for host in mixed.hosts:
        verdict = shown[host.name]
        if host.verdict == "findings":
            assert verdict.split()[0] in roots[host.name]
        elif host.verdict == "ok":
            live = {one.severity for one in mixed.findings if one.host == host.name and not one.waived}
            assert verdict == ("ok (warning)" if "warning" in live else "ok")
        else:
            assert verdict.startswith(host.verdict)


def test_hosts_with_the_same_findings_share_a_row(mixed: Run) -> None:
    shown = rows(render(mixed, 200))[1:]
    patterns = {row[-1] for row in shown if "(error)" in row[-1]}
    assert len(patterns) == len([row for row in shown if "(error)" in row[-1]]) == 7
    wide = rows(render(mixed, wide=True))[1:]
    assert len(wide) == len(mixed.hosts)


def test_hosts_whose_findings_differ_have_rows_of_their_own() -> None:
    hosts = [runs.host(name, "findings") for name in ("a", "b", "c")]
    found = (
        runs.finding("a", "one"),
        runs.finding("b", "one"),
        runs.finding("b", "two"),
        runs.finding("c", "one"),
    )
    shown = rows(render(runs.run(*hosts, findings=found)))[1:]
    assert [(row[0], row[-1]) for row in shown] == [("a,c (2)", "one (error)"), ("b", "one (error) +1")]


def test_what_all_hosts_have_gives_way_to_what_tells_them_apart() -> None:
    text = render(mixed_fleet.fleet(40), 80)
    assert rows(text)[0] == ["HOST", "GPUS", "DRIVER", "CSRC", "FUSION", "VERDICT"]
    assert "Alike wherever known: VENV /opt/venvs/serve, LINK SYS." in text
    assert "Without room here: FLASHINFER. See --wide." in text
    assert any(line.split() == ["missing"] for line in text.splitlines()), "MOVED and missing take a line each"
    two = render(runs.run(runs.host("a", venvs=(runs.venv("/v"), runs.venv("/w")))), 80)
    assert [row[rows(two)[0].index("VENV")] for row in rows(two)[1:]] == ["/v", "/w"]


def test_what_differs_alike_is_told_once_whatever_the_group() -> None:
    text = block(render(mixed_fleet.fleet(1000), 80), "WARNING  fleet-outlier")
    assert text.count("Unlike most hosts of their groups: FlashInfer in") == 1
    assert text.count("fleetcheck audit all -i INVENTORY --fold") == 1
    assert "{" not in text
    one = runs.finding(
        "a", "fleet-outlier", "warning", message="Unlike most hosts of g: it is 1, not 2.", expected={"it": "2"},
        seen={"it": "1"}, remedy=("fleetcheck audit g --fold", "Mend it."),
    )  # fmt: skip
    assert "Unlike most hosts of g: it is 1" in render(runs.run(runs.host("a"), findings=(one,)))
    other = one.model_copy(
        update={"host": "b", "seen": {"it": "3"}, "message": "Unlike most hosts of h: it is 3."}
    )
    text = render(runs.run(runs.host("a"), runs.host("b"), findings=(one, other)))
    assert "hosts of g: it is 1" in text
    assert "hosts of h: it is 3" in text


def test_one_gpu_a_host_in_the_same_place_is_told_once() -> None:
    message = "The PCIe link of GPU 2 (00000000:41:00.0) is x8, x16 is possible."
    found = tuple(runs.finding(f"h{n}", "pcie-width", gpu=f"GPU-{n}", message=message) for n in range(3))
    hosts = [runs.host(f"h{n}", "findings") for n in range(3)]
    assert f"ERROR  pcie-width  3 hosts\n  h[0-2]\n    {message}" in render(runs.run(*hosts, findings=found))
    vague = tuple(one.model_copy(update={"message": "A GPU is slow."}) for one in found)
    text = render(runs.run(*hosts, findings=vague))
    assert all(f"h{n}  GPU GPU-{n}\n    A GPU is slow." in text for n in range(3))
    twice = runs.finding("h0", "pcie-width", gpu="GPU-9", message=message)
    assert "GPU GPU-9" in render(runs.run(*hosts, findings=(*found, twice)))


def test_the_same_hosts_are_named_once() -> None:
    names = [f"gpu{number}" for number in range(1, 6)]
    found = []
    for name in names:
        found += [runs.finding(name, "root"), runs.finding(name, "leaf", cause="root")]
        found += [runs.finding(name, "root", message="and")]
    found += [runs.finding(name, "part", cause="root") for name in names[:2]]
    text = block(
        render(runs.run(*(runs.host(name, "findings") for name in names), findings=tuple(found))), "ERROR"
    )
    assert "  gpu[1-5]\n    root says so\n  the same 5 hosts\n    and\n" in text
    assert "  explains leaf (error) on the same 5 hosts\n" in text
    assert text.endswith("  explains part (error) on gpu[1-2]\n    part says so")


def test_the_place_of_a_finding_does_not_pass_the_width() -> None:
    names = [f"gpu{number:03d}.rack{number:02d}.lab" for number in range(1, 4)]
    found = tuple(runs.finding(name, venv="/opt/venvs/serving-all-of-them") for name in names)
    text = block(render(runs.run(*(runs.host(name, "findings") for name in names), findings=found), 80), "ERROR")
    assert text.splitlines()[1:3] == [f"  {','.join(names)}", "  /opt/venvs/serving-all-of-them"]


def test_the_summary_takes_the_width_of_the_terminal() -> None:
    line = render(runs.every_kind(), 0).splitlines()[0]
    assert cells(line) > 200
    first, second = render(runs.every_kind(), 200).splitlines()[:2]
    assert f"{first} {second}" == line
