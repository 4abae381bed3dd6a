"""How each format's real consumer reads a report back: every host with its outcome."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import jsonschema
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from junitparser import Error, JUnitXml, Skipped
from markdown_it import MarkdownIt
from markdown_it.token import Token
from prometheus_client.parser import text_string_to_metric_families
from support.runs import VERDICTS

from fleetcheck.report import schema

Ends = dict[str, str]


def unfolded(text: str) -> set[str]:
    return set(NodeSet(text, resolver=RESOLVER_NOGROUP))


def by_table(text: str) -> Ends:
    ends: Ends = {}
    for line in text.split("\n\n")[1].splitlines()[1:]:
        cells = re.split(r" {2,}", line)
        # Findings are told by their gravest rule, in the last cell.
        ends_so = (cell.partition(" (")[0] for cell in cells[::-1])
        named = re.search(r"\((info|warning|error|critical)\)( \+\d+)?$", line) and not line.endswith(
            "ok (warning)"
        )
        end = "findings" if named else next(end for end in ends_so if end in VERDICTS)
        names = unfolded(cells[0].partition(" (")[0])
        ends |= dict.fromkeys(names, "checked" if end in ("ok", "findings") else end)
    return ends


def by_json(text: str) -> Ends:
    document: Any = json.loads(text)
    jsonschema.validate(document, json.loads(schema.shipped()))
    return {host["name"]: host["outcome"] for host in document["hosts"]}


def json_lines(text: str) -> list[dict[str, Any]]:
    """Return the lines, each valid by the shipped schema."""
    validator = jsonschema.Draft202012Validator(json.loads(schema.shipped(schema.LINE_FILE)))
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        validator.validate(line)
    return lines


def by_jsonl(text: str) -> Ends:
    return {line["name"]: line["outcome"] for line in json_lines(text) if line["type"] == "host"}


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def by_csv(text: str) -> Ends:
    return {row["host"]: row["outcome"] for row in csv_rows(text) if row["outcome"]}


def markdown_tokens(text: str) -> list[Token]:
    """Return every token of CommonMark with tables, inline ones too; HTML and bare addresses are let through."""
    found = []
    for token in MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table").parse(text):
        found += [token, *(token.children or [])]
    return found


def markdown_tables(text: str) -> list[list[list[str]]]:
    """Return the cells of each table's rows, header first, code without its marks."""
    tables: list[list[list[str]]] = []
    for token in markdown_tokens(text):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type in ("td_open", "th_open"):
            tables[-1][-1].append("")
        elif token.type in ("text", "code_inline") and tables and tables[-1]:
            tables[-1][-1][-1] += token.content
        elif token.type == "table_close":
            tables.append([])
    return [table for table in tables if table]


def by_markdown(text: str) -> Ends:
    ends: Ends = {}
    for outcome, _, count, names in markdown_tables(text)[0][1:]:
        assert len(unfolded(names)) == int(count)
        ends |= dict.fromkeys(unfolded(names), outcome)
    return ends


def by_junit(text: str) -> Ends:
    ends: Ends = {}
    for suite in JUnitXml.fromstring(text.encode()):
        outcome = {item.name: item.value for item in suite.properties()}.get("outcome")
        look = next((case for case in suite if case.name == "look"), None)
        if look is not None:
            assert bool(look.result) == (outcome != "checked")
            assert all(isinstance(item, Skipped if outcome == "skipped" else Error) for item in look.result)
            ends[suite.name.removeprefix("fleetcheck.")] = str(outcome)
    return ends


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples of a text file; no series comes twice and none has a timestamp."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            assert sample.timestamp is None
            found[key] = sample.value
    return found


def by_prometheus(text: str) -> Ends:
    ends: Ends = {}
    for (name, labels), value in samples(text).items():
        if name == "fleetcheck_host_outcome" and value == 1:
            label = dict(labels)
            assert label["host"] not in ends
            ends[label["host"]] = label["outcome"]
    return ends


def by_nagios(text: str) -> Ends:
    assert len(text.encode()) <= 4096
    ends: Ends = {}
    for line in text.splitlines()[1:]:
        said = re.fullmatch(r"([a-z-]+)(?:, [a-z]+)? \((\d+)\): (.+)", line)
        if said:
            ends |= dict.fromkeys(unfolded(said[3]), said[1])
    return ends


class Page(HTMLParser):
    """A page as it is parsed: every element with its attributes, the texts of some, the rows of the matrix."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)
        self.texts.setdefault(tag, []).append("")
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data
        if self.rows and "table" in self._open:
            self.rows[-1][-1:] = [f"{cell}{data}" for cell in self.rows[-1][-1:]]

    def named(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        """Return the attributes of each element of a kind that has these."""
        return [found for name, found in self.elements if name == tag and attributes.items() <= found.items()]


def by_html(text: str) -> Ends:
    ends: Ends = {}
    for name, verdict, *_ in Page(text).rows[1:]:
        assert name not in ends
        mark, _, said = verdict.strip().partition(" ")
        unseen = {"not": "checked ", "in": "maintenance "}.get(mark)
        ends[name.strip()] = said.removeprefix(unseen).split(" ")[0] if unseen else "checked"
    return ends


READERS: dict[str, Callable[[str], Ends]] = {
    "table": by_table, "json": by_json, "jsonl": by_jsonl, "csv": by_csv, "markdown": by_markdown,
    "junit": by_junit, "prometheus": by_prometheus, "nagios": by_nagios, "html": by_html,
}  # fmt: skip
