"""The HTML page as text: what stands in it without its script, what it carries, and that nothing in it acts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from support import mixed_fleet, reports, rule_lines, runs
from support.audits import fleetcheck

from fleetcheck.facts.records import Process, System, Venv
from fleetcheck.report import documents, formats, html, matrix, packed
from fleetcheck.report import host as one_host
from fleetcheck.report.findings import groups
from fleetcheck.report.json import plain
from fleetcheck.report.steps import step
from fleetcheck.report.table import summary
from fleetcheck.rules.finding import Finding, Waived
from fleetcheck.run import Run

RUN = mixed_fleet.fleet(40)
TEXT = html.render(RUN)
EVIL = "\x1b[31m\x00\u202e</script><script>alert(1)</script>\u2028<img src=x onerror=alert(1)>\udcff"

HOSTILE = (EVIL, "<b>", "&lt;", '" onload="x', "{{ 7 * 7 }}", "</td><td>", "-->", "x" * 1_000_000)


def read(run: Run) -> reports.Page:
    return reports.Page(html.render(run))


def shown(page: reports.Page) -> str:
    """Return what a reader without the script sees."""
    hidden = {"style", "script", "title"}
    return "\n".join(text for tag, texts in page.texts.items() if tag not in hidden for text in texts)


def data(text: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">([^<]*)</script>', text)
    document: dict[str, Any] = json.loads(found)
    return document


def unpacked(text: str) -> list[dict[str, Any]]:
    parts = data(text)["parts"]
    return [host for part in parts for host in json.loads(zlib.decompress(base64.b64decode(part, validate=True)))]


def texts(thing: Any) -> list[str]:
    if isinstance(thing, dict):
        return [*thing, *(text for item in thing.values() for text in texts(item))]
    if isinstance(thing, list):
        return [text for item in thing for text in texts(item)]
    return [thing] if isinstance(thing, str) else []


class TestWithoutItsScript:
    def test_the_summary_is_first_and_in_the_words_of_the_table(self) -> None:
        heading = re.search(r"<h1>(.*?)</h1>", TEXT)
        assert heading is not None
        assert re.sub(r"<[^>]*>", "", heading[1]) == summary(RUN)
        assert TEXT.index("<h1>") < TEXT.index("<main>")

    def test_the_matrix_has_a_column_for_each_rule_that_occurs_and_a_word_in_each_cell(self) -> None:
        head, *rows = reports.Page(TEXT).rows
        rules = [cell.strip() for cell in head[8:]]
        assert sorted(rules) == sorted({finding.rule for finding in RUN.findings if finding.host})
        cells = {(row[0].strip(), rule): cell for row in rows for rule, cell in zip(rules, row[8:], strict=True)}
        said = {place: cell.split() for place, cell in cells.items() if cell.strip()}
        assert {(finding.host, finding.rule) for finding in RUN.findings if finding.host} == set(said)
        for finding in RUN.findings:
            words = said[finding.host or "", finding.rule]
            assert words[0] == ("waived" if finding.waived else finding.severity)
            assert ("explained" in words) == (finding.cause is not None)

    def test_hosts_stand_worst_first(self) -> None:
        verdicts = [row[1].split()[0] for row in reports.Page(TEXT).rows[1:]]
        order = ["critical", "error", "not", "in", "warning", "info", "ok"]
        assert [order.index(verdict) for verdict in verdicts] == sorted(order.index(one) for one in verdicts)

    def test_each_finding_is_told_with_its_remedy(self) -> None:
        page = reports.Page(TEXT)
        code = page.texts["code"]
        said = shown(page)
        found = groups(RUN.findings)
        assert all(one.message in said for group in found for one in group.said)
        assert all(
            message in said for group in found for one in group.follows.values() for message in one.messages
        )
        for finding in RUN.findings:
            if finding.host and not finding.waived and finding.cause is None and finding.severity == "error":
                parts = [step(text) for text in finding.remedy]
                assert {command for part in parts for command in part.commands} <= set(code)
                assert all(part.lead in said and part.note in said and part.mark in said for part in parts)

    def test_what_was_not_checked_or_is_waived_says_why(self) -> None:
        said = shown(reports.Page(TEXT))
        assert "nothing listens there, or a firewall refuses it" in said
        assert "maintenance until 2030-02-01: chassis swap" in said
        assert re.search(r"until 2030-06-01, slot wired x8", said)

    def test_an_incomplete_and_a_limited_run_say_so(self) -> None:
        run = runs.run(runs.host("a"), complete=False)
        limited = run.model_copy(update={"run": run.run.model_copy(update={"ignore": ("gpu",)})})
        assert "Interrupted: this run ended before every host was looked at." in shown(read(limited))
        assert "Judged without gpu (--ignore)" in shown(read(limited))
        assert "Interrupted" not in shown(read(runs.run(runs.host("a"))))

    def test_findings_of_the_whole_fleet_are_there(self) -> None:
        run = runs.run(runs.host("a"), findings=(runs.finding(None, "fleet-outlier", "warning"),))
        said = shown(read(run))
        assert "fleet-outlier says so" in said
        assert "(fleet)" in said

    def test_several_environments_of_one_host_share_its_row(self) -> None:
        venvs = (runs.venv("/a"), runs.venv("/b", version="0.6.18", csrc_dir="/x"), runs.venv("/c", version="9"))
        _, row = read(runs.run(runs.host("a", venvs=venvs))).rows
        assert (row[5], row[6]) == ("0.6.2, 0.6.18, …", "complete, MOVED")

    def test_more_rules_than_columns_are_counted(self) -> None:
        found = tuple(runs.finding("a", f"rule-{number:03d}") for number in range(matrix.COLUMNS + 7))
        page = read(runs.run(runs.host("a", "findings"), findings=found))
        assert len(page.rows[0]) == 8 + matrix.COLUMNS
        assert "7 more rules have no column" in shown(page)

    def test_a_cell_tells_the_gravest_and_a_live_finding_before_a_waived_one(self) -> None:
        waived = Waived(reason="r", until="2031-01-01")
        found = (
            runs.finding("a", "x", "warning"), runs.finding("a", "x", "error", cause="y"),
            runs.finding("a", "z", "critical", waived=waived), runs.finding("a", "z", "info"),
            runs.finding("a", "w", "critical", waived=waived),
        )  # fmt: skip
        head, row = read(runs.run(runs.host("a", "findings"), findings=found)).rows
        said = dict(zip(map(str.strip, head[8:]), map(str.strip, row[8:]), strict=True))
        assert said == {"x": "error explained", "z": "info", "w": "waived"}

    def test_a_fault_is_marked_in_its_own_column_and_nothing_else_is(self) -> None:
        page = reports.Page(TEXT)
        heads = [cell.strip() for cell in page.rows[0]]
        lines = re.findall(r"<tr data-v=.*", TEXT)
        marked = {
            (re.sub("<[^>]*>", "", cells[0]).rsplit(">")[-1], heads[place]): re.sub("<[^>]*>", "", cell)
            for cells in (re.split(r"(?=<t[dh])", line)[1:] for line in lines)
            for place, cell in enumerate(cells)
            if cell.startswith('<td class="bad">')
        }
        (gpus,) = (row[2] for row in page.rows if row[0].strip() == mixed_fleet.name(18))
        assert marked == {
            (mixed_fleet.name(3), "csrc"): "MOVED, missing", (mixed_fleet.name(12), "Fusion"): "on, unsafe-patch",
            (mixed_fleet.name(18), "GPUs"): gpus.strip(),
            (mixed_fleet.name(27), "Driver"): "575.57.08", (mixed_fleet.name(30), "GPUs"): "hung",
            (mixed_fleet.name(33), "FlashInfer"): "venv missing",
        }  # fmt: skip

    def test_hosts_are_counted_by_kind_and_warnings_are_not_ok(self) -> None:
        counts = re.findall(r'href="#verdict=([a-z]+)"><span class="key [a-z]+"></span>(\d+) ', TEXT)
        assert dict(counts) == {"clean": "25", "warned": "5", "findings": "7", "unseen": "2", "skipped": "1"}
        widths = re.findall(r'<rect class="([a-z]+)" x="[\d.]+%" width="([\d.]+)%"', TEXT)
        assert {name: float(width) for name, width in widths} == {
            name: 100 * int(count) / 40 for name, count in counts
        }

    def test_an_unseen_host_says_what_to_do_next(self) -> None:
        code = reports.Page(TEXT).texts["code"]
        assert f"fleetcheck doctor {mixed_fleet.name(9)} -i fleet.yaml" in code
        assert f"fleetcheck doctor {mixed_fleet.name(38)} -i fleet.yaml" in code
        assert not any("doctor" in one and mixed_fleet.name(31) in one for one in code)

    def test_the_lines_of_the_rules_are_those_of_the_catalogue(self) -> None:
        assert rule_lines.FILE.read_text("utf-8") == rule_lines.lines(), "run tests/support/rule_lines.py"

    def test_the_words_of_the_page_are_explained(self) -> None:
        said = "\n".join(reports.Page(TEXT).texts["dt"])
        for word in ("csrc", "decoy", "on-unvalidated", "gate", "guards", "basis", "+1", "explained"):
            assert f"\n{word}" in f"\n{said}"


class TestFacts:
    def test_each_host_carries_what_the_json_document_has(self) -> None:
        hosts = unpacked(TEXT)
        rows = [row[0] for row in reports.Page(TEXT).rows[1:]]
        assert [host["facts"]["name"] for host in hosts] == rows
        known = {host.name: host for host in RUN.hosts}
        for told in hosts:
            assert without_null(told["facts"]) == without_null(plain(known[told["facts"]["name"]]))

    def test_the_sentence_the_findings_and_what_was_not_examined_are_those_of_show(self) -> None:
        known = {host.name: host for host in RUN.hosts}
        for told in unpacked(TEXT):
            host = known[told["facts"]["name"]]
            findings = [finding for finding in RUN.findings if finding.host == host.name]
            assert told["sentence"] == one_host.summary(host, findings)
            assert told["unexamined"] == list(one_host.unexamined(host))
            rules = {group["rule"] for group in told["findings"]}
            rules |= {one["rule"] for group in told["findings"] for one in group["follows"]}
            assert rules == {finding.rule for finding in findings if not finding.waived}
            assert [one["rule"] for one in told["waived"]] == [one.rule for one in findings if one.waived]

    def test_what_a_host_says_is_clean_and_bounded(self) -> None:
        packages = {f"{EVIL}{number}": EVIL for number in range(1000)}
        title = "A" * 1_000_000
        process = Process(pid=1, title=title, mapped=("/x",) * 5000, flags={EVIL: EVIL})
        venv = Venv(path=EVIL, packages=packages, error=EVIL)
        (host,) = unpacked(html.render(runs.run(runs.host("a", venvs=(venv,), processes=(process,)))))
        assert all(text.isprintable() and len(text) < 2100 for text in texts(host))
        (told,) = host["facts"]["processes"]
        assert told["mapped"][-1] == "and 4800 more"
        assert host["facts"]["venvs"][0]["packages"]["and more"] == 800
        assert told["title"] == "A" * packed.TEXT + "…"

    @pytest.mark.parametrize("odd", ["é", "\x7f", "\u2028", "\udcff", "\\x", '"', "\t", "模"])
    def test_odd_characters_are_as_in_the_other_formats(self, odd: str) -> None:
        (host,) = unpacked(html.render(runs.run(runs.host("a", system=System(hostname=f"<{odd}>")))))
        expected = one_host.clean(f"<{odd}>")
        assert host["facts"]["system"]["hostname"] == expected

    def test_the_keys_of_a_host_are_known_from_those_of_the_records(self) -> None:
        names = data(TEXT)["about"]["mappings"]
        assert {"flags", "environment", "constants", "gates", "packages", "links"} <= set(names)
        assert not {"venvs", "flashinfer", "devices"} & set(names)


def without_null(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {key: without_null(item) for key, item in thing.items() if item is not None}
    return [without_null(item) for item in thing] if isinstance(thing, list) else thing


class TestNothingActs:
    def test_the_policy_admits_this_style_and_these_scripts_alone(self) -> None:
        page = reports.Page(TEXT)
        (policy,) = page.named("meta", **{"http-equiv": "Content-Security-Policy"})
        rules = dict(rule.split(" ", 1) for rule in str(policy["content"]).split("; "))
        assert rules["default-src"] == "'none'"
        assert rules["require-trusted-types-for"] == "'script'"
        assert set(rules["style-src"].split()) == {hashed(text) for text in page.texts["style"]}
        scripts = [
            text
            for text, (_, attributes) in zip(
                page.texts["script"], [one for one in page.elements if one[0] == "script"], strict=True
            )
            if attributes.get("type") != "application/json"
        ]
        assert len(scripts) == 2
        assert set(rules["script-src"].split()) == set(map(hashed, scripts))
        assert TEXT.index("Content-Security-Policy") < TEXT.index("<style>")

    def test_nothing_leads_out_of_the_page(self) -> None:
        page = reports.Page(TEXT)
        for tag, attributes in page.elements:
            assert tag not in (
                "link",
                "img",
                "iframe",
                "object",
                "embed",
                "base",
                "audio",
                "video",
                "image",
                "use",
            )
            assert not {"src", "srcset", "action", "style", "ping", "poster", "background"} & set(attributes)
            assert not any(name.startswith("on") for name in attributes)
            address = str(attributes.get("href", "#"))
            if not address.startswith("#"):
                # A reference of a rule, which a reader may follow; nothing is fetched before.
                assert tag == "a" and address in {finding.reference for finding in RUN.findings}
                assert address.startswith("https://") and attributes["rel"] == "noopener noreferrer"
        for name in html.SCRIPTS:
            text = (files("fleetcheck.report") / html.FOLDER / name).read_text("utf-8")
            assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|sendBeacon|import|eval|innerHTML)\b", text)
        assert not re.search(r"url\(|@import|@font-face", page.texts["style"][0])
        addresses = set(re.findall(r"https?://[^\s\"'<]+", page.texts["script"][-1]))
        assert addresses == {"http://www.w3.org/2000/svg"}

    @pytest.mark.parametrize("bad", HOSTILE, ids=range(len(HOSTILE)))
    def test_a_hostile_host_adds_no_element(self, bad: str) -> None:
        def page(text: str) -> reports.Page:
            return read(hostile(text))

        harmless, harmed = page("plain"), page(bad)
        assert [tag for tag, _ in harmed.elements] == [tag for tag, _ in harmless.elements]
        assert [set(one) for _, one in harmed.elements] == [set(one) for _, one in harmless.elements]
        assert "49" not in shown(harmed)

    @pytest.mark.parametrize(
        ("reference", "followed"),
        [
            ("https://docs.nvidia.com/deploy/xid-errors/index.html#x", True),
            ("http://docs.nvidia.com/", False), ("javascript:alert(1)", False), ("docs/ssh.md", False),
            ("https://a.lab/\u202e", False), ("https://user@a.lab/", False), ("https://a.lab/x y", False),
            ("flashinfer#3903", False), (" https://a.lab/", False), ("https:a", False),
        ],
    )  # fmt: skip
    def test_only_a_plain_https_address_can_be_followed(self, reference: str, followed: bool) -> None:
        found = (runs.finding("a", reference=reference),)
        text = html.render(runs.run(runs.host("a", "findings"), findings=found))
        links = [str(one.get("href")) for tag, one in reports.Page(text).elements if tag == "a"]
        assert (reference in links) == followed
        assert all(link.startswith("#") or link == reference for link in links)

    def test_the_data_cannot_end_its_element(self) -> None:
        run = hostile(EVIL)
        text = html.render(
            run.model_copy(update={"run": run.run.model_copy(update={"inventory": EVIL, "id": EVIL})})
        )
        assert data(text)["about"]["run"]["inventory"] == one_host.clean(EVIL)
        (block,) = re.findall(r'id="data">(.*)</script>\n<script>', text)
        assert block.isascii()
        assert "<" not in block


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def hostile(bad: str) -> Run:
    """Return a run in which a host, its groups and its findings say ``bad`` wherever they can."""
    gpus = runs.gpus(driver=bad, names=(bad,), compute_capability=(bad,))
    lies = runs.host("a", "findings", groups=(bad,), address=bad, gpus=gpus, venvs=(runs.venv(bad, version=bad),))
    lost = runs.host("b", "timeout", detail=bad, message=bad)
    words = dict.fromkeys(("rule", "message", "venv", "gpu", "expected", "seen", "reference"), bad)
    found = (
        Finding(severity="error", host="a", remedy=(bad,), **words),
        runs.finding("a", "other", cause=bad, message=bad),
        runs.finding("a", waived=Waived(reason=bad, until=bad)),
    )
    return runs.run(lies, lost, findings=found)


class TestCommand:
    def test_several_runs_are_one_page(self, tmp_path: Path) -> None:
        sites = {"north": runs.run(runs.host("a"), complete=False), "south": runs.run(runs.host("b", "timeout"))}
        for name, run in sites.items():
            (tmp_path / f"{name}.json").write_text(formats.render(run, "json"))
        page = tmp_path / "page.html"
        done = fleetcheck(
            "report",
            str(tmp_path / "north.json"),
            str(tmp_path / "south.json"),
            "--quiet",
            "--output",
            f"html:{page}",
        )
        assert (done.stdout, done.stderr) == ("", "")
        assert reports.by_html(page.read_text("utf-8")) == {"a": "checked", "b": "timeout"}
        assert "Interrupted" in page.read_text("utf-8")

    def test_the_page_on_standard_output_is_the_page(self, tmp_path: Path) -> None:
        path = tmp_path / "run.json"
        path.write_text(formats.render(RUN, "json"))
        done = fleetcheck("report", str(path), "--format", "html")
        assert done.stdout == html.render(documents.read(str(path)))
