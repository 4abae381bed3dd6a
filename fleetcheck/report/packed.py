"""The facts of each host as the page carries them: clean, in parts of a few hosts each, compressed.

A host's facts are some 12 kB of JSON and nearly the same as its neighbour's: packed, a thousand hosts take well
under a megabyte, and the browser unpacks the one part that holds the host to show. Nothing in it acts as markup.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError

from fleetcheck.report.findings import Group, groups, where
from fleetcheck.report.further import at_host
from fleetcheck.report.host import ITEMS, summary, unexamined
from fleetcheck.report.json import plain
from fleetcheck.report.steps import key_command, steps
from fleetcheck.report.text import clean
from fleetcheck.rules.finding import SEVERITIES, Finding
from fleetcheck.run import HostResult

PART = 50
"""How many hosts are unpacked at once."""
TEXT = 2000
"""How many characters of one text are kept."""
KEYS = ("host-key-changed", "host-key-unknown")
"""Outcomes whose message is ours and may end in a command."""
_MOST = 300_000
"""Bytes of one host's facts from which on its long lists are cut."""
_ODD = re.compile(rb'[^\x20-\x7e]|\\[^"\\]')


def packed(hosts: Sequence[tuple[HostResult, Sequence[Finding]]], inventory: str) -> list[str]:
    """Return the parts, base64 of zlib of a JSON array with one object a host, in the order that is given.

    An object has ``sentence``, ``findings``, ``counts`` and ``waived`` (:func:`told`, :func:`counts` and
    :func:`accepted`), ``unexamined``, ``next`` where the host was not checked (commands for where fleetcheck
    runs), and ``facts``, the host as in the JSON document without what is null.
    """
    texts = [_host(host, findings, inventory) for host, findings in hosts]
    return [_packed(texts[start : start + PART]) for start in range(0, len(texts), PART)]


def _packed(texts: Sequence[bytes]) -> str:
    return base64.b64encode(zlib.compress(b"[" + b",".join(texts) + b"]")).decode("ascii")


def _host(host: HostResult, findings: Sequence[Finding], inventory: str) -> bytes:
    about: dict[str, Any] = {
        "sentence": summary(host, findings),
        "findings": [told(group) for group in groups(findings)],
        "counts": counts(findings),
        "waived": [accepted(finding) for finding in findings if finding.waived],
        "unexamined": list(unexamined(host)),
    }
    if host.verdict not in ("ok", "findings", "skipped"):
        about["next"] = {**at_host(clean(host.name, 300), inventory)._asdict(), "keys": keys(host)}
    return b'{"facts":' + _facts(host) + b"," + json.dumps(about).encode("ascii")[1:]


def keys(host: HostResult) -> str:
    """Return the command on host keys that ends our own message on one, "" where there is none."""
    return key_command(clean(host.message or "", TEXT))[1] if host.outcome in KEYS else ""


def _facts(host: HostResult) -> bytes:
    try:
        text = host.model_dump_json(exclude_none=True).encode("utf-8")
    except PydanticSerializationError:  # a lone surrogate: a file name that is not UTF-8
        return _dump(_sound(plain(host)))
    if len(text) > _MOST or _ODD.search(text) or max(map(len, text.split(b'"'))) > TEXT:
        return _dump(_sound(json.loads(text)))
    return text


def _dump(thing: Any) -> bytes:
    return json.dumps(thing, separators=(",", ":")).encode("ascii")


def _sound(thing: Any) -> Any:
    """Return values with every text clean, and lists and mappings bounded; what is cut says so."""
    if isinstance(thing, str):
        return clean(thing, TEXT)
    if isinstance(thing, Mapping):
        kept = {clean(str(key), 200): _sound(item) for key, item in list(thing.items())[:ITEMS]}
        return kept | {"and more": len(thing) - ITEMS} if len(thing) > ITEMS else kept
    if isinstance(thing, list | tuple):
        items = [_sound(item) for item in thing[:ITEMS]]
        return [*items, f"and {len(thing) - ITEMS} more"] if len(thing) > ITEMS else items
    return thing


def told(group: Group) -> dict[str, Any]:
    """Return what one rule found, in clean texts: ``said``, what ``follows`` from it, and ``references``."""
    return {
        "rule": clean(group.rule, 200),
        "severity": SEVERITIES[group.worst],
        "said": [
            {
                "severity": said.severity, "venv": said.venv, "gpu": said.gpu, "message": said.message,
                "expected": said.expected, "seen": said.seen, "basis": said.basis,
                "remedy": [one._asdict() for one in steps(said.remedy)],
                "where": where(said.remedy) if said.remedy else None,
            }
            for said in group.said
        ],
        "follows": [
            {"severity": severity, "rule": clean(rule, 200), "messages": list(follows.messages)}
            for (severity, rule), follows in group.follows.items()
        ],
        "references": list(group.references),
    }  # fmt: skip


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """Return how many findings the sentence on a host counts, and how many of them are info or have a cause."""
    live = [finding for finding in findings if not finding.waived]
    explained = sum(finding.cause is not None for finding in live)
    info = sum(finding.cause is None and finding.severity == "info" for finding in live)
    return {"all": len(live), "info": info, "explained": explained}


def accepted(finding: Finding) -> dict[str, str]:
    """Return a waived finding in clean texts."""
    waived = finding.waived
    return {
        "rule": clean(finding.rule, 200),
        "severity": finding.severity,
        "message": clean(finding.message, 1000),
        "until": clean(waived.until, 60) if waived else "",
        "reason": clean(waived.reason, 1000) if waived else "",
    }
