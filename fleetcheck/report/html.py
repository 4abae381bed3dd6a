"""One page for a browser, in one file that asks nothing of anyone: no script, style or font from elsewhere.

The fleet and its findings stand in the page as they are; the page's script filters and sorts them and shows one
host. A Content-Security-Policy lets exactly this style and these scripts act, and nothing be written as markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple, get_args, get_origin
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import BaseModel

from fleetcheck.report import host as one_host
from fleetcheck.report.findings import FLEET, FOLLOWING, SHOWN, Group, Said, groups, where
from fleetcheck.report.further import Further, at_host, of_one_host
from fleetcheck.report.glossary import counted, glossary, legend
from fleetcheck.report.matrix import Row, matrix, summary_of
from fleetcheck.report.nodes import fold
from fleetcheck.report.packed import KEYS, PART, packed
from fleetcheck.report.steps import Step, key_command, steps
from fleetcheck.report.table import EARLY, MESSAGES, limits, summary
from fleetcheck.report.text import clean
from fleetcheck.rules.finding import SEVERITIES, Finding, Severity
from fleetcheck.run import HostResult, Run

FOLDER = "page"
SCRIPTS = ("elements.js", "topology.js", "facts.js", "host.js", "filter.js", "grid.js", "fleet.js")
"""The parts of the page's script, in one scope, in this order."""
LINKED = 40
"""How many pieces of one node set lead to their hosts; more would be a page of links."""
_FACTS = 600
_PIECE = re.compile(r"(?:\[[^\]]*\]|[^,\[]|\[)+,?|,")
_HTTPS = re.compile(r"https://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/#?&=%+-]*)?")


class Rule(NamedTuple):
    """What one rule found: all of it by remedy, as the table tells it; ``hosts`` counts those of ``places``."""

    rule: str
    summary: str
    severity: str
    hosts: int
    places: str
    remedies: list[Remedy]
    rest: int
    rest_places: str
    follows: Sequence[tuple[str, str, str, list[str], int]]
    references: list[str]


class Remedy(NamedTuple):
    """Steps, where they are taken, and what they mend."""

    steps: list[Step]
    where: str
    items: list[tuple[Said, str]]


class Unseen(NamedTuple):
    """Hosts that were not checked, for the same reason; ``next`` leads on from one of them.

    A message is its words and the command that it ends with, or "".
    """

    outcome: str
    why: str
    hosts: int
    places: str
    messages: list[tuple[str, str]]
    rest: int
    next: Further | None


class Place(NamedTuple):
    """One piece of a node set: its texts, each ending where a line may, and what shows its hosts, or ""."""

    texts: list[str]
    fragment: str


def render(run: Run) -> str:
    """Return the page with a line end."""
    style, theme = _text("page.css"), _text("theme.js")
    script = '(() => {\n"use strict";\n' + "".join(map(_text, SCRIPTS)) + "})();\n"
    fleet = matrix(run)
    found = groups(run.findings)
    info = run.run
    inventory = clean(info.inventory, _FACTS)
    # What may be an attack is not one of many timeouts.
    unseen = sorted(_unseen(run.hosts, inventory), key=lambda one: one.outcome != "host-key-changed")
    rules = [_rule(group) for group in found]
    document = {"part": PART, "parts": packed(fleet.hosts, inventory), "about": _about(run)}
    environment = Environment(
        loader=PackageLoader("fleetcheck.report", FOLDER), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"places": _places, "address": address}
    totals = run.summary
    text = environment.get_template("page.html").render(
        policy=_policy(style, theme, script), style=_inert(style), theme=_inert(theme), script=_inert(script),
        summary=summary(run), limits=limits(run), complete=info.complete, totals=totals, fleet=fleet,
        id=clean(info.id, _FACTS), inventory=inventory, version=clean(info.version, 100),
        started=_time(info.started), finished=_time(info.finished),
        early=[rule for rule in rules if rule.rule in EARLY],
        rules=[rule for rule in rules if rule.rule not in EARLY],
        unseen=[one for one in unseen if one.outcome != "skipped"],
        resting=[one for one in unseen if one.outcome == "skipped"], waived=list(_waived(run.findings)),
        legend=list(legend(fleet.rows)), counted=any(map(counted, fleet.rows)), words=glossary(run, fleet.rows),
        # Where some are ok with warnings, those without are not all that the summary counts as ok.
        parted=any(one.choice == "warned" for one in fleet.tallies),
        severities=list(_severities(fleet.rows)), verdicts=_verdicts(run.hosts),
        data=_inert(_data(document)), one_host=of_one_host(inventory),
    )  # fmt: skip
    return text if text.endswith("\n") else text + "\n"


def _text(name: str) -> str:
    return (files("fleetcheck.report") / FOLDER / name).read_text("utf-8")


def _inert(text: str) -> Markup:
    """Return our own text, which holds nothing that ends its element, to stand in the page as it is."""
    return Markup(text)  # noqa: S704  # the package's files, and JSON in which no < is left


def _policy(style: str, *scripts: str) -> str:
    """Return the policy: this style and these scripts by their hashes, and nothing written as markup."""
    hashed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {hashed}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _data(document: Any) -> str:
    """Return JSON that cannot end the element it stands in; pure ASCII, so without U+2028."""
    text = json.dumps(document, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _about(run: Run) -> dict[str, Any]:
    """Return what the script needs to tell of a host in the words of ``fleetcheck show``."""
    info = run.run
    return {
        "look": one_host.OF_THE_LOOK,
        "said": one_host.SAID,
        "sections": one_host.SECTIONS,
        "mappings": sorted(_mappings(HostResult)),
        "rules": {
            name: said
            for name in sorted({clean(finding.rule, 200) for finding in run.findings})
            if (said := summary_of(name))
        },
        "run": {
            "run": clean(info.id, _FACTS),
            "started": clean(info.started, 100),
            "inventory": clean(info.inventory, _FACTS),
            "judged by": clean(", ".join(info.select), _FACTS),
            "judged without": clean(", ".join(info.ignore), _FACTS),
        },
    }


def _mappings(thing: Any) -> set[str]:
    """Return the names of the members of a record, at any depth, whose keys are a host's own words."""
    found: set[str] = set()
    for name, field in thing.model_fields.items():
        kinds = [field.annotation]
        while kinds:
            kind = kinds.pop()
            kinds += get_args(kind)
            if get_origin(kind) is dict:
                found.add(name)
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= _mappings(kind)
    return found


def _time(text: str | None) -> str:
    """Return a time of the record as ``2030-01-01 00:00:09``; what is none stays as it is."""
    shown = clean(text or "", 40)
    return shown[:19].replace("T", " ") if shown[10:11] == "T" and shown.endswith("Z") else shown


def _verdicts(hosts: Sequence[HostResult]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for host in hosts:
        counted[host.verdict] = counted.get(host.verdict, 0) + 1
    return counted


def _severities(rows: Sequence[Row]) -> Iterator[tuple[Severity, int]]:
    """Yield each severity that is the worst of some host, with how many hosts have it or a graver one."""
    counted = Counter(row.severity for row in rows)
    total = 0
    for severity in reversed(SEVERITIES):
        total += counted[severity]
        if counted[severity]:
            yield severity, total


def _rule(group: Group) -> Rule:
    shown = list(group.said.items())
    by_remedy: dict[tuple[str, ...], list[tuple[Said, str]]] = {}
    for said, names in shown[:SHOWN]:
        by_remedy.setdefault(said.remedy, []).append((said, fold(names)))
    rest = shown[SHOWN:]
    hosts = dict.fromkeys(name for _, names in shown for name in names)
    follows = []
    for (severity, rule), one in group.follows.items():
        told = list(one.messages)
        follows.append((severity, clean(rule, 100), fold(one.hosts), told[:FOLLOWING], len(told[FOLLOWING:])))
    return Rule(
        rule=clean(group.rule, 100),
        summary=summary_of(group.rule),
        severity=SEVERITIES[group.worst],
        hosts=len(hosts),
        places=fold(hosts),
        remedies=[
            Remedy(steps(texts), where(texts) if texts else "", items) for texts, items in by_remedy.items()
        ],
        rest=len(rest),
        rest_places=fold(name for _, names in rest for name in names) if rest else "",
        follows=follows,
        references=list(group.references),
    )


def _unseen(hosts: Sequence[HostResult], inventory: str) -> Iterator[Unseen]:
    failed: dict[tuple[str, str | None, str | None], list[HostResult]] = {}
    for host in hosts:
        if host.verdict not in ("ok", "findings"):
            failed.setdefault((host.outcome, host.stage, host.detail), []).append(host)
    for (outcome, stage, detail), ended in failed.items():
        why = ", ".join(clean(part, 60) for part in (detail, stage and f"stage {stage}") if part)
        said = list(dict.fromkeys(clean(host.message, 1000) for host in ended if host.message))
        told = [key_command(text) if outcome in KEYS else (text, "") for text in said]
        names = [clean(host.name, 300) for host in ended]
        step = None if outcome == "skipped" else at_host(names[0], inventory, one_of_many=len(names) > 1)
        shown = told[:MESSAGES]
        yield Unseen(outcome, why, len(ended), fold(names), shown, len(told) - len(shown), step)


def _places(folded: str) -> Iterator[Place]:
    """Yield the pieces of a node set; the first :data:`LINKED` of them lead to their hosts."""
    pieces = _PIECE.findall(folded)
    for piece in pieces[:LINKED]:
        name = piece.rstrip(",")
        texts = re.findall(r"[^,]*,|[^,]+", piece)
        leads = f"{'q' if '[' in name else 'host'}={quote(name, safe='')}" if name and name != FLEET else ""
        yield Place(texts, leads)
    if pieces[LINKED:]:
        yield Place(re.findall(r"[^,]*,|[^,]+", "".join(pieces[LINKED:])), "")


def address(reference: str) -> str:
    """Return a reference that can be followed, "" for anything but an https address of plain characters."""
    return reference if _HTTPS.fullmatch(reference) else ""


def _waived(findings: Sequence[Finding]) -> Iterator[tuple[str, str, str, str]]:
    accepted: dict[tuple[str, str, str], list[str]] = {}
    for finding in findings:
        if finding.waived:
            key = (finding.rule, finding.waived.until, finding.waived.reason)
            accepted.setdefault(key, []).append(finding.host or "(fleet)")
    for (rule, until, reason), names in accepted.items():
        yield clean(rule, 100), clean(until, 60), clean(reason, 1000), fold(names)
