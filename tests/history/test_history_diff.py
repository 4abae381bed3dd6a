"""What changed: verdicts, findings, facts, swapped GPUs, reinstalled and renamed hosts, and what is no change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import nights, runs

from fleetcheck.facts.records import System
from fleetcheck.history import text
from fleetcheck.history.diff import Changes, compare, of_past, of_run
from fleetcheck.history.past import Past
from fleetcheck.history.store import History
from fleetcheck.rules.finding import Finding, Waived
from fleetcheck.run import HostResult

BAD = "csrc-missing"


class Book:
    """A history, and what the last run changed."""

    def __init__(self, history: History) -> None:
        self.history, self.past, self.count = history, Past(history), 0

    def run(self, *hosts: HostResult, findings: tuple[Finding, ...] = (), complete: bool = True) -> Changes:
        """Store one more run and return what it changed; asked both ways, from memory and from the file."""
        self.count += 1
        made = nights.run(self.count, hosts, findings, complete=complete)
        number = nights.store(self.history, made)
        base = self.past.ended_before(number)
        fleet = tuple(item for item in findings if item.host is None)
        changes = compare(self.past, base, of_run(made), made.run, fleet)
        again = compare(self.past, base, of_past(self.past.looks(number)), made.run, self.past.fleet(number))
        assert again.to_json() == changes.to_json()
        return changes

    def told(self, *hosts: HostResult, findings: tuple[Finding, ...] = ()) -> list[str]:
        changes = self.run(*hosts, findings=findings)
        later = nights.FIRST + timedelta(hours=self.count + 6)
        return text.render(changes, later).splitlines()


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    with History.open(tmp_path / "history.db") as history:
        yield Book(history)


def kinds(changes: Changes) -> dict[str, str]:
    return {change.host: change.kind for change in changes.changed}


def test_worse_better_and_no_change(book: Book) -> None:
    a, b = nights.machine("a"), nights.machine("b")
    assert kinds(book.run(a, b)) == {"a": "first-seen", "b": "first-seen"}
    assert not book.run(a, b)
    bad = nights.machine("a", "findings")
    found = (runs.finding("a", BAD, venv="/opt/x"),)
    worse = book.run(bad, b, findings=found)
    assert kinds(worse) == {"a": "worse"}
    assert worse.changed[0].appeared == found
    reworded = (runs.finding("a", BAD, venv="/opt/x", message="other words"),)
    assert not book.run(bad, b, findings=reworded)
    more = (*reworded, runs.finding("a", "persistence-off", "warning"))
    assert kinds(book.run(bad, b, findings=more)) == {"a": "worse"}
    assert kinds(book.run(bad, b, findings=reworded)) == {"a": "better"}
    assert kinds(book.run(a, b)) == {"a": "better"}


def test_a_waiver_makes_it_better_and_an_info_only_changes(book: Book) -> None:
    bad = nights.machine("a", "findings")
    book.run(bad, findings=(runs.finding("a", BAD),))
    waived = (runs.finding("a", BAD, waived=Waived(reason="slot", until="2031-01-01")),)
    assert kinds(book.run(nights.machine("a"), findings=waived)) == {"a": "better"}
    info = (*waived, runs.finding("a", "fusion-refused", "info"))
    assert kinds(book.run(nights.machine("a"), findings=info)) == {"a": "changed"}


def test_a_host_not_checked_never_replaces_a_verdict(book: Book) -> None:
    good = nights.machine("a", gpus=runs.gpus(driver="580"))
    book.run(good)
    lost = nights.machine("a", "unreachable", message="refused")
    line = book.told(lost)[1]
    assert line == "not checked   a: unreachable; last seen ok 7 h ago (refused)"
    assert not book.run(lost)
    assert kinds(book.run(nights.machine("a", "timeout"))) == {"a": "not-checked"}
    assert kinds(book.run(good)) == {"a": "checked-again"}
    book.run(lost)
    back = book.run(nights.machine("a", gpus=runs.gpus(driver="600")))
    assert (back.changed[0].kind, back.changed[0].was_unseen) == ("changed", "unreachable")
    assert [(one.key, one.before, one.after) for one in back.changed[0].facts] == [("gpus.driver", "580", "600")]


def test_a_host_not_selected_is_not_gone(book: Book) -> None:
    a, b = nights.machine("a"), nights.machine("b")
    book.run(a, b)
    assert not book.run(a)
    assert not book.run(a, b)


def test_a_run_that_was_interrupted_changes_nothing_that_it_did_not_see(book: Book) -> None:
    a = nights.machine("a")
    book.run(a)
    unseen = nights.machine("a", "timeout", detail="interrupted")
    assert not book.run(unseen, complete=False)
    assert not book.run(a)


def devices(*uuids: str | None) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"index": index, "uuid": uuid, "bus_id": f"0000:0{index}:00.0", "state": "ok", "vbios": uuid}
        for index, uuid in enumerate(uuids)
    )


def test_a_swapped_gpu_is_one_line(book: Book) -> None:
    book.run(nights.machine("a", gpus=runs.gpus(2, devices=devices("GPU-1", "GPU-2"))))
    lines = book.told(nights.machine("a", gpus=runs.gpus(2, devices=devices("GPU-1", "GPU-9"))))
    assert lines[1:] == ["changed       a: ok", "    GPU 0000:01:00.0 swapped: GPU-2 -> GPU-9"]
    unknown = nights.machine("a", gpus=runs.gpus(2, devices=devices("GPU-1", None)))
    assert not book.run(unknown)


def test_a_gpu_that_is_gone_is_one_line_and_a_dead_smi_takes_none_away(book: Book) -> None:
    book.run(nights.machine("a", gpus=runs.gpus(2, devices=devices("GPU-1", "GPU-2"))))
    lines = book.told(nights.machine("a", gpus=runs.gpus(1, devices=devices("GPU-1"))))
    assert lines[2:] == ["    gpus.count: 2 -> 1", "    gpus.devices[0000:01:00.0]: gone"]
    dead = nights.machine("a", gpus=runs.gpus(None, state="hung", devices=()))
    lines = book.told(dead)
    assert lines[2:] == ["    gpus.state: ok -> hung"]


def test_a_reinstalled_host_is_one_line(book: Book) -> None:
    book.run(nights.machine("a", gpus=runs.gpus(driver="580")))
    new = nights.machine("a", identity="other", gpus=runs.gpus(driver="600"))
    lines = book.told(new)
    assert lines[1:] == ["changed       a: ok", "    reinstalled: its machine-id is another one; 1 facts differ"]


def test_a_renamed_host_is_compared_with_its_past(book: Book) -> None:
    book.run(nights.machine("old", identity="x", gpus=runs.gpus(driver="580")))
    lines = book.told(nights.machine("new", identity="x", gpus=runs.gpus(driver="600")))
    assert lines[1:] == [
        "changed       new: ok", "    the machine was called old (same machine-id)", "    gpus.driver: 580 -> 600",
    ]  # fmt: skip
    both = (nights.machine("old", identity="x"), nights.machine("third", identity="x"))
    assert kinds(book.run(*both))["third"] == "first-seen"


def test_facts_that_a_newer_version_learns_change_no_host(book: Book) -> None:
    book.run(nights.machine("a", gpus=runs.gpus(kernel_module=None)))
    assert not book.run(nights.machine("a", gpus=runs.gpus(kernel_module="open")))


def test_environments_and_packages_come_and_go(book: Book) -> None:
    one = runs.venv("/opt/a").model_copy(update={"packages": {"torch": "2.9", "triton": "3"}})
    book.run(nights.machine("a", venvs=(one,)))
    other = one.model_copy(update={"packages": {"torch": "2.10", "nccl": "2"}})
    lines = book.told(nights.machine("a", venvs=(other, runs.venv("/opt/b"))))
    assert lines[2:] == [
        "    venvs[/opt/a].packages.torch: 2.9 -> 2.10", "    venvs[/opt/a].packages.triton: gone",
        "    venvs[/opt/a].packages.nccl: new (2)", "    venvs[/opt/b]: new",
    ]  # fmt: skip


def test_hosts_that_changed_alike_are_one_line(book: Book) -> None:
    names = [f"gpu{number:02}" for number in range(1, 13)]
    book.run(*(nights.machine(name) for name in names))
    lines = book.told(*(nights.machine(name, gpus=runs.gpus(driver="600")) for name in names))
    assert lines[1] == "changed       gpu[01-12]: ok"
    assert len(lines) == 3


def test_findings_of_the_fleet_are_compared_where_the_hosts_are_the_same(book: Book) -> None:
    a, b = nights.machine("a"), nights.machine("b")
    whole = (runs.finding(None, "fleet-outlier", "warning"),)
    book.run(a, b)
    assert book.run(a, b, findings=whole).appeared == whole
    assert not book.run(a)
    assert not book.run(a, b, findings=whole)


def test_what_a_host_says_is_harmless(book: Book) -> None:
    book.run(nights.machine("a", gpus=runs.gpus(driver="1")))
    evil = nights.machine(
        "a", gpus=runs.gpus(driver="\x1b[2J\nok"), system=System(hostname="a", machine_id="id-a")
    )
    said = "\n".join(book.told(evil))
    assert "\x1b" not in said
    assert "\\x1b[2J\\nok" in said


def test_a_clock_that_jumped_back_orders_no_runs(book: Book) -> None:
    host = nights.machine("a")
    nights.store(book.history, nights.run(900, [host]))
    changes = book.run(nights.machine("a", gpus=runs.gpus(driver="600")))
    assert changes.before is not None
    assert changes.before.id == "run-900"
    assert "the clock jumped back" in text.render(changes, nights.FIRST)


def test_a_verdict_that_stays_is_not_what_got_worse(book: Book) -> None:
    a = nights.machine("a")
    book.run(a)
    found = (runs.finding("a", "gpu-count", "warning"), runs.finding("a", "iommu-on", "warning"))
    worse = book.told(a, findings=found)
    assert worse[1] == "worse         a: 2 new findings (gpu-count, iommu-on); the verdict is still ok"
    better = book.told(a, findings=found[1:])
    assert better[1] == "better        a: 1 resolved finding (gpu-count); the verdict is still ok"
