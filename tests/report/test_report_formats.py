"""Every format over one run that holds each outcome and verdict, read back by its real consumer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from junitparser import Failure, JUnitXml, Skipped
from support import reports, runs

from fleetcheck.agent.evidence import OUTCOMES
from fleetcheck.facts.records import Cache, Process, Venv
from fleetcheck.report import csv, formats, jsonl, nagios, prometheus, schema
from fleetcheck.rules.finding import Finding, Waived
from fleetcheck.run import Finished, HostDone, Run, Started

RUN = runs.every_kind()
SPOILED = (
    "\x1b[31m\x00\u202e\n\r\t`|@all #1 <script>alert(1)</script> ``` ~~~ ![x](http://x.invalid/) ]]> "
    "\udcff\ufffe\x85"
)
ENDINGS = ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", " =1", "＝1", '=HYPERLINK("x")')


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_selected_host_is_there_with_its_outcome(name: str) -> None:
    text = formats.render(RUN, name)
    expected = {host.name: host.outcome for host in RUN.hosts}
    assert set(expected.values()) == set(OUTCOMES)
    assert {host.verdict for host in RUN.hosts} == set(runs.VERDICTS)
    if name in reports.READERS:
        assert reports.READERS[name](text) == expected
    else:  # a format whose reader has tests of its own
        assert all(host in text for host in expected)


@pytest.mark.parametrize("name", formats.FORMATS)
def test_a_run_without_hosts_is_no_error(name: str) -> None:
    text = formats.render(runs.run(), name)
    assert text.endswith("\n")
    if name not in ("table", "markdown") and name in reports.READERS:
        assert reports.READERS[name](text) == {}


def test_the_shipped_schema_of_lines_is_what_the_records_say() -> None:
    assert json.loads(schema.shipped(schema.LINE_FILE)) == schema.line_schema()


@pytest.mark.parametrize(
    "line",
    [
        {"type": "host"}, {"type": "nothing"}, {}, {"type": "finding", "rule": "x"},
        {"type": "summary", "hosts": 1, "ok": 1, "findings": 0, "not_checked": 0, "by_outcome": {}},
    ],
)  # fmt: skip
def test_the_schema_of_lines_refuses_what_is_none(line: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="is not valid under any of the given schemas"):
        reports.json_lines(json.dumps(line))


class TestJsonl:
    def test_lines_come_as_hosts_end(self) -> None:
        stream = jsonl.Stream()
        first, second = runs.host("a", "findings"), runs.host("b")
        found = (runs.finding("a"), runs.finding("a", "other"))
        fleet = runs.finding(None, "fleet-outlier")
        run = runs.run(second, first, findings=(*found, fleet))
        told = [
            list(stream.lines(Started(run.run, 2))), list(stream.lines(HostDone(first, found))),
            list(stream.lines(HostDone(second, ()))), list(stream.lines(Finished(run))),
        ]  # fmt: skip
        kinds = [[line["type"] for line in reports.json_lines("".join(lines))] for lines in told]
        assert kinds == [["run"], ["host", "finding", "finding"], ["host"], ["finding", "summary"]]

    def test_what_the_end_changes_is_said_again_whole(self) -> None:
        stream = jsonl.Stream()
        found = runs.finding("a")
        early, late = runs.host("a"), runs.host("a", "findings")
        lost = runs.host("b", "timeout")
        run = runs.run(late, lost, findings=(found,))
        text = "".join([*stream.lines(HostDone(early, ())), *stream.lines(Finished(run))])
        lines = reports.json_lines(text)
        assert [(line["type"], line.get("name"), line.get("verdict")) for line in lines] == [
            ("host", "a", "ok"), ("host", "a", "findings"), ("finding", None, None), ("host", "b", "timeout"),
            ("summary", None, None),
        ]  # fmt: skip

    def test_the_beginning_knows_no_end(self) -> None:
        lines = reports.json_lines(jsonl.render(RUN))
        assert (lines[0]["finished"], lines[0]["complete"]) == (None, False)
        assert (lines[-1]["finished"], lines[-1]["complete"]) == (RUN.run.finished, True)
        assert lines[-1]["by_outcome"] == RUN.summary.by_outcome
        found = [line for line in lines if line["type"] == "finding"]
        assert len(found) == len(RUN.findings)


class TestCsv:
    @pytest.mark.parametrize("text", ENDINGS)
    def test_no_cell_is_a_formula(self, text: str) -> None:
        venv = Venv(path=text, state="missing")
        found = runs.finding("a", text, venv=text, message=text, expected=text, seen=text, remedy=(text,))
        run = runs.run(runs.host("a", "findings", detail=text, venvs=(venv,)), findings=(found,))
        (row,) = reports.csv_rows(csv.render(run))
        names = ("venv", "rule", "message", "expected", "seen", "remedy")
        assert all(row[name].startswith(("'", "\\")) for name in names)
        assert not any(cell.strip(" ").startswith(tuple("=+-@＝＋－＠")) for cell in row.values())

    def test_rows_are_findings_and_what_has_none(self) -> None:
        venvs = (runs.venv("/a"), runs.venv("/b"))
        found = (
            runs.finding("x", "whole"), runs.finding("x", "one", venv="/a"), runs.finding("x", "two", venv="/a"),
            runs.finding("x", "gone", venv="/c"), runs.finding(None, "fleet"),
        )  # fmt: skip
        rows = reports.csv_rows(csv.render(runs.run(runs.host("x", venvs=venvs), runs.host("y"), findings=found)))
        assert [(row["host"], row["venv"], row["rule"], row["flashinfer"]) for row in rows] == [
            ("x", "", "whole", ""), ("x", "/a", "one", "0.6.2"), ("x", "/a", "two", "0.6.2"),
            ("x", "/b", "", "0.6.2"), ("x", "/c", "gone", ""), ("y", "/root/ml-env", "", "0.6.2"),
            ("", "", "fleet", ""),
        ]  # fmt: skip

    def test_every_finding_is_one_row_with_its_remedy(self) -> None:
        rows = [row for row in reports.csv_rows(csv.render(RUN)) if row["rule"]]
        assert len(rows) == len(RUN.findings)
        (row,) = (row for row in rows if row["rule"] == "csrc-missing")
        assert row["remedy"] == (
            "1. cp -a env.py env.py.bak  2. pip install --force-reinstall flashinfer-python==0.6.2"
        )
        (row,) = (row for row in rows if row["rule"] == "pcie-width")
        assert (row["waived_reason"], row["waived_until"]) == ("slot wired x8", "2031-03-01")


class TestMarkdown:
    def test_it_fits_a_comment_and_gives_each_remedy_once(self) -> None:
        names = [f"gpu{number:04d}.rack{number % 7}.lab" for number in range(3000)]
        found = tuple(runs.finding(name, remedy=("do `this`",), message=f"on {name}") for name in names)
        text = formats.render(
            runs.run(
                *(runs.host(name, "findings", gpus=runs.gpus(driver=name)) for name in names), findings=found
            ),
            "markdown",
        )
        assert len(text) < 65_536
        assert set(reports.by_markdown(text)) == set(names)
        assert text.count("do `this`") == 1
        assert "2950 more rows are not shown here." in text

    def test_code_is_what_it_was(self) -> None:
        texts = ["a`b", "``", " x", "x ", "`", "a\\", "a\\|b", "*x*", "&amp;", "```", "<b>"]
        hosts = [
            runs.host(f"h{number}", "findings", venvs=(Venv(path=text),)) for number, text in enumerate(texts)
        ]
        (_, details) = reports.markdown_tables(formats.render(runs.run(*hosts), "markdown"))
        assert [row[3] for row in details[1:]] == [text.replace("|", "\\x7c") for text in texts]


class TestJunit:
    def test_what_is_a_failure_an_error_and_skipped(self) -> None:
        document = JUnitXml.fromstring(formats.render(RUN, "junit").encode())
        assert (document.errors, document.failures, sum(suite.skipped for suite in document)) == (7, 4, 2)
        results = {
            (suite.name.removeprefix("fleetcheck."), case.name): [type(item) for item in case.result]
            for suite in document
            for case in suite
        }
        assert results["gpu18.lab", "csrc-missing /root/ml-env"] == [Failure]
        assert results["gpu18.lab", "env-edited /root/ml-env"] == []
        assert results["gpu01.lab", "pcie-width"] == [Skipped]
        assert results["bad-skipped", "look"] == [Skipped]
        assert results["(fleet)", "fleet-outlier"] == []
        assert len(results) == len(RUN.hosts) + len(RUN.findings)

    @pytest.mark.parametrize(
        ("verdict", "severities", "failures"),
        [
            ("ok", ["warning", "error"], 0), ("findings", ["info", "warning"], 1),
            ("findings", ["warning", "error", "critical"], 2), ("timeout", ["critical"], 0),
        ],
    )  # fmt: skip
    def test_a_suite_fails_where_the_verdict_does(self, verdict: Any, severities: Any, failures: int) -> None:
        found = tuple(runs.finding("a", severity=severity) for severity in severities)
        document = JUnitXml.fromstring(formats.render(runs.run(runs.host("a", verdict), findings=found), "junit"))
        assert document.failures == failures
        assert document.tests == 1 + len(found)

    def test_it_says_what_it_is_in_utf_8(self) -> None:
        text = formats.render(runs.run(runs.host("模")), "junit")
        assert text.startswith("<?xml version='1.0' encoding='UTF-8'?>\n<testsuites")
        assert reports.by_junit(text) == {"模": "checked"}


class TestPrometheus:
    def test_the_gauges(self) -> None:
        found = reports.samples(prometheus.render(RUN))

        def one(name: str, **labels: str) -> float:
            return found[name, frozenset(labels.items())]

        assert one("fleetcheck_last_run_timestamp_seconds") == 1893456009
        assert one("fleetcheck_run_duration_seconds") == 9
        assert one("fleetcheck_run_complete") == 1
        assert one("fleetcheck_hosts", outcome="checked") == 21
        assert one("fleetcheck_host_ok", host="gpu17.lab") == 1
        assert one("fleetcheck_host_ok", host="gpu18.lab") == 0
        assert one("fleetcheck_host_ok", host="bad-timeout") == 0
        assert ("fleetcheck_host_ok", frozenset({("host", "bad-skipped")})) not in found
        assert one("fleetcheck_host_findings", host="gpu18.lab", severity="error") == 1
        assert one("fleetcheck_host_findings", host="gpu01.lab", severity="error") == 0
        assert one("fleetcheck_findings", rule="fusion-refused", severity="info") == 16
        assert one("fleetcheck_findings_waived") == 1
        assert one("fleetcheck_host_gpus", host="gpu01.lab") == 8
        assert ("fleetcheck_last_success_timestamp_seconds", frozenset()) not in found

    def test_the_last_success_is_carried_over(self) -> None:
        name = prometheus.SUCCESS
        fine = runs.run(runs.host("a"), runs.host("b", "skipped"), runs.host("c", "findings"))
        first = prometheus.render(fine)
        assert reports.samples(first)[name, frozenset()] == 1893456009
        lost = runs.run(runs.host("a"), runs.host("b", "timeout"))
        assert f"{name} 1.893456009e+09" in prometheus.render(lost, first)
        assert name not in prometheus.render(lost)
        early = runs.run(runs.host("a"), complete=False)
        assert f"{name} 12.0" in prometheus.render(early, f"{name} 12\n")

    @pytest.mark.parametrize(
        "earlier",
        ["not metrics {{{", "\x00", f"{prometheus.SUCCESS} NaN\n", f"{prometheus.SUCCESS} -1\n", "a b c d"],
    )
    def test_a_file_of_someone_else_is_ignored(self, earlier: str) -> None:
        lost = runs.run(runs.host("b", "timeout"))
        assert prometheus.SUCCESS not in prometheus.render(lost, earlier)

    def test_series_are_bounded_and_come_once(self) -> None:
        venvs = tuple(Venv(path="/v" * 500_000 + str(number)) for number in range(500))
        hosts = [runs.host("h" * 300 + str(number), venvs=venvs) for number in range(3)]
        text = prometheus.render(runs.run(*hosts))
        found = reports.samples(text)
        assert sum(name == "fleetcheck_venv_info" for name, _ in found) == 3 * prometheus.VENVS
        assert max(map(len, text.splitlines())) < 2000


class TestNagios:
    @pytest.mark.parametrize(
        ("run", "state"),
        [
            (runs.run(runs.host("a"), runs.host("b", "skipped")), "OK"),
            (runs.run(runs.host("a"), findings=(runs.finding("a", severity="info"),)), "OK"),
            (runs.run(runs.host("a"), findings=(runs.finding("a", severity="warning"),)), "WARNING"),
            (runs.run(runs.host("a"), findings=(runs.finding("a"),)), "WARNING"),
            (runs.run(runs.host("a", "findings"), findings=(runs.finding("a", severity="info"),)), "WARNING"),
            (runs.run(runs.host("a", "findings"), findings=(runs.finding("a"),)), "CRITICAL"),
            (runs.run(runs.host("a", "findings"), runs.host("b", "timeout")), "CRITICAL"),
            (
                runs.run(
                    runs.host("a"), findings=(runs.finding("a", waived=Waived(reason="r", until="2031-01-01")),)
                ),
                "OK",
            ),
            (
                runs.run(
                    runs.host("a"), runs.host("b", "timeout"), findings=(runs.finding("a", severity="warning"),)
                ),
                "UNKNOWN",
            ),
            (runs.run(), "UNKNOWN"),
            (runs.run(runs.host("a"), complete=False), "UNKNOWN"),
        ],
    )
    def test_states(self, run: Run, state: Any) -> None:
        assert nagios.render(run).startswith(f"FLEETCHECK {state} - ")
        assert nagios.code(run) == nagios.CODES[state]

    def test_performance_data(self) -> None:
        status, *rest = nagios.render(RUN).splitlines()
        text, _, data = status.partition("|")
        assert "29 hosts: 17 ok" in text
        assert dict(item.partition("=")[::2] for item in data.split()) == {
            "hosts": "29;;;0", "ok": "17;;;0;29", "findings": "4;;0;0;29", "not_checked": "7;0;;0;29",
            "maintenance": "1;;;0;29", "critical": "1;;;0", "error": "3;;;0", "warning": "3;;;0",
            "info": "16;;;0", "duration": "9.000s;;;0",
        }  # fmt: skip
        assert not any("|" in line for line in rest)

    def test_4_kb_hold_every_outcome_however_many_the_hosts(self) -> None:
        ends: Any = ("ok", *OUTCOMES[1:])
        hosts = [
            runs.host(f"{chr(97 + number % 26)}{'xyz'[number % 3] * (number // 26)}", ends[number % len(ends)])
            for number in range(900)
        ]
        text = nagios.render(runs.run(*hosts))
        assert len(text.encode()) <= nagios.LIMIT
        assert all(f"\n{end} ({900 // len(ends)}): " in text for end in OUTCOMES[1:])
        assert f"\nchecked, ok ({900 // len(ends)}): " in text
        assert text.endswith(f"{nagios.MORE}\n")


def hostile(bad: str) -> Run:
    """Return a run in which all that a host may say is ``bad``."""
    flash = dict.fromkeys(("version", "csrc_dir", "root"), bad)
    lies = runs.host(
        "gpu1", "findings", message=bad, detail=bad, address=bad, groups=(bad,),
        venvs=(runs.venv(bad, **flash), Venv(path=bad, error=bad)), caches=(Cache(path=bad, error=bad),),
        processes=(Process(pid=1, title=bad, flags={bad: bad}),),
        gpus=runs.gpus(driver=bad, names=(bad,), compute_capability=(bad,) * 20, diagnostics=(bad,)),
    )  # fmt: skip
    lost = runs.host("gpu2", "probe-error", message=bad, detail=bad)
    words = dict.fromkeys(("message", "venv", "gpu", "expected", "reference", "cause"), bad)
    found = (
        Finding(rule=bad, severity="critical", host="gpu1", remedy=(bad, bad), seen={bad: [bad]}, **words),
        runs.finding("gpu1", waived=Waived(reason=bad, until=bad)),
        runs.finding("gpu2", message=bad, seen=[bad]),
        runs.finding(None, bad, message=bad),
    )
    return runs.run(lies, lost, findings=found)


HOSTILE = {
    "mixed": SPOILED, "long": SPOILED + "A" * 1_000_000, "nothing": "", "blank": " ", "ticks": "`" * 500,
    "lines": "\n# x\n\n- [ ] y\n\n<b>\n\n    z", "fence": "```\n</pre><script>\n~~~",
    "row": "a | b |\n|---|---|\n", "backslash": "\\", "backslash-bar": "\\|<b>|\\", "quote": '"\'`\\"',
    "rtl": "\u202e\u2066abc", "cdata": "]]>-->",
    **{f"formula-{number}": text for number, text in enumerate(ENDINGS)},
}  # fmt: skip


@pytest.mark.parametrize("bad", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", list(reports.READERS))
def test_a_hostile_host_harms_no_format(name: str, bad: str) -> None:
    text = formats.render(hostile(bad), name)
    text.encode("utf-8")
    assert all(line.isprintable() for line in text.split("\n"))
    assert reports.READERS[name](text) == {"gpu1": "checked", "gpu2": "probe-error"}
    if name not in ("json", "jsonl"):  # they keep what came, escaped; the agent bounds it
        assert len(text) < 150_000
    if name == "csv":
        assert not any(
            cell.strip(" ").startswith(tuple("=+-@＝＋－＠"))
            for row in reports.csv_rows(text)
            for cell in row.values()
        )
        assert len(reports.csv_rows(text)) == len(text.splitlines()) - 1
    if name == "markdown":
        acts = {"html_inline", "html_block", "link_open", "image", "list_item_open", "hr", "code_block"}
        tokens = reports.markdown_tokens(text)
        assert not {token.type for token in tokens} & acts
        plain = "".join(token.content for token in tokens if token.type == "text")
        assert not any(mark in plain for mark in ("@", "#1", "http", "<", "script"))
    if name == "nagios":
        assert [line.count("|") for line in text.splitlines()] == [1] + [0] * (len(text.splitlines()) - 1)
