"""JUnit XML beside what pytest itself writes: both keep to one grammar, and one reader reads both alike.

pytest reads no JUnit XML; it writes it (``--junit-xml``). So a file that the installed pytest makes of a real test
run is the measure: :data:`GRAMMAR` restates what the schema of Jenkins' xunit plugin (junit-10.xsd, which pytest's
family ``xunit2`` means) admits, pytest's own file has to keep to it, and so have ours.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest
from support import mixed_fleet, runs

from fleetcheck.report import junit
from fleetcheck.rules.finding import Finding
from fleetcheck.run import Run

NUMBER, TIME, TEXT = r"\d+", r"\d*(\.\d*)?", r"(?s).*"


class Kind(NamedTuple):
    """What an element must have, what it may have, what may stand in it, and whether text may."""

    must: dict[str, str]
    may: dict[str, str]
    within: frozenset[str] = frozenset()
    text: bool = False


COUNTS = {"tests": NUMBER, "failures": NUMBER, "errors": NUMBER}
RESULT = Kind({}, {"type": TEXT, "message": TEXT}, text=True)
GRAMMAR = {
    "testsuites": Kind({}, {"name": TEXT, "time": TIME, **COUNTS}, frozenset({"testsuite"})),
    "testsuite": Kind(
        {"name": TEXT, **COUNTS}, {"skipped": NUMBER, "time": TIME, "timestamp": TEXT, "hostname": TEXT},
        frozenset({"testsuite", "properties", "testcase", "system-out", "system-err"}),
    ),
    "properties": Kind({}, {}, frozenset({"property"})),
    "property": Kind({"name": TEXT, "value": TEXT}, {}),
    "testcase": Kind(
        {"name": TEXT}, {"time": TIME, "classname": TEXT},
        frozenset({"skipped", "error", "failure", "system-out", "system-err"}),
    ),
    "failure": RESULT, "error": RESULT, "skipped": RESULT,
    "system-out": Kind({}, {}, text=True), "system-err": Kind({}, {}, text=True),
}  # fmt: skip
RESULTS = ("failure", "error", "skipped")
TESTS = """
import pytest

def test_passes():
    print("what it printed")

def test_fails():
    assert 1 == 2, "<&> ]]>"

@pytest.fixture
def broken():
    raise ValueError("broken")

def test_errs(broken):
    pass

@pytest.mark.skip(reason="not today")
def test_is_left_out():
    pass
"""
EVIL = "\x1b[31m\x00\u202e]]></testcase><x>&\"'\udcff\ufffe"


def breaches(element: ElementTree.Element) -> list[str]:
    """Return in what an element, and all within it, departs from the grammar."""
    kind = GRAMMAR[element.tag]
    admitted = kind.must | kind.may
    told = [f"{element.tag} lacks {name}" for name in kind.must if name not in element.attrib]
    for name, value in element.attrib.items():
        if not re.fullmatch(admitted.get(name, "(?!)"), value):
            told.append(f"{element.tag} has {name}={value!r}")
    told += [f"{element.tag} holds {child.tag}" for child in element if child.tag not in kind.within]
    if not kind.text and (element.text or "").strip():
        told.append(f"{element.tag} holds text")
    return told + [line for child in element if child.tag in kind.within for line in breaches(child)]


def read(text: str) -> dict[tuple[str, str], str]:
    """Return how each case ended, as a CI server counts; the counts of each suite must agree with its cases."""
    ends: dict[tuple[str, str], str] = {}
    for suite in ElementTree.fromstring(text.encode()).iter("testsuite"):
        cases = suite.findall("testcase")
        found = [next((child.tag for child in case if child.tag in RESULTS), "passed") for case in cases]
        counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
        kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
        assert counts == {"tests": len(cases)} | {name: found.count(kind) for name, kind in kinds.items()}
        for case, end in zip(cases, found, strict=True):
            place = str(case.get("classname")), str(case.get("name"))
            assert place not in ends
            ends[place] = end
    return ends


@pytest.fixture(scope="module")
def of_pytest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the file that the installed pytest writes of a run with every kind of result."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "test_other.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\njunit_logging = all\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--junit-xml=found.xml", "test_other.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    return (folder / "found.xml").read_text("utf-8")


def hostile() -> Run:
    words: dict[str, Any] = dict.fromkeys(
        ("rule", "message", "venv", "gpu", "expected", "seen", "reference"), EVIL
    )
    found = Finding(severity="error", host=EVIL, remedy=(EVIL,), **words)
    return runs.run(runs.host(EVIL, "findings", seconds=1e-7), findings=(found,))


def test_pytest_s_own_file_keeps_to_the_grammar(of_pytest: str) -> None:
    assert breaches(ElementTree.fromstring(of_pytest.encode())) == []
    assert {element.tag for element in ElementTree.fromstring(of_pytest.encode()).iter()} >= {
        "system-out",
        *RESULTS,
    }


@pytest.mark.parametrize(
    "run",
    [
        runs.every_kind(),
        mixed_fleet.fleet(40),
        hostile(),
        runs.run(),
        runs.run(*(runs.host(f"h{n}") for n in range(99))),
    ],
    ids=["every kind", "mixed", "hostile", "empty", "many"],
)
def test_ours_keeps_to_it(run: Run) -> None:
    assert breaches(ElementTree.fromstring(junit.render(run).encode())) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('<testsuites skipped="1"/>', ["testsuites has skipped='1'"]),
        ('<testsuites time="1e-07"/>', ["testsuites has time='1e-07'"]),
        ("<testsuites><testcase/></testsuites>", ["testsuites holds testcase"]),
        ("<testsuites><testsuite name='a' tests='1' errors='0'/></testsuites>", ["testsuite lacks failures"]),
        ("<testcase name='a'>text<properties/></testcase>", ["testcase holds properties", "testcase holds text"]),
    ],
)
def test_the_grammar_refuses_what_is_none(text: str, told: list[str]) -> None:
    assert breaches(ElementTree.fromstring(text)) == told


def test_one_reader_reads_pytest_s_file(of_pytest: str) -> None:
    assert read(of_pytest) == {
        ("test_other", "test_passes"): "passed", ("test_other", "test_fails"): "failure",
        ("test_other", "test_errs"): "error", ("test_other", "test_is_left_out"): "skipped",
    }  # fmt: skip


def test_and_ours(of_pytest: str) -> None:
    run = runs.every_kind()
    ends = read(junit.render(run))
    assert len(ends) == len(run.hosts) + len(run.findings)
    for host in run.hosts:
        expected = "passed" if host.outcome == "checked" else "skipped" if host.outcome == "skipped" else "error"
        assert ends[host.name, "look"] == expected
    assert ends["gpu18.lab", "csrc-missing /root/ml-env"] == "failure"
    assert ends["gpu01.lab", "pcie-width"] == "skipped"
    assert ends["gpu01.lab", "fusion-refused"] == "passed"
    assert set(ends.values()) == set(read(of_pytest).values())
