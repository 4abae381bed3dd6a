"""A host's result as texts that repeat from run to run, and back.

In: a :class:`fleetcheck.run.HostResult` and its findings. Out: JSON texts without what is volatile by definition
(:mod:`fleetcheck.facts.records`), so that a host which did not change gives the same bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from pydantic import BaseModel, TypeAdapter

from fleetcheck.rules.finding import Finding
from fleetcheck.run import HostResult

FACTS = ("system", "gpus", "toolkits", "venvs", "caches")
"""The fields of a host that are stored, each as a text of its own: they change one by one.

``processes`` are left out: which run, and under which id, is of the moment.
"""
HEAD = ("address", "groups", "outcome", "stage", "detail", "message")
DIGEST = 16
PLAIN = frozenset({str, int, float, bool, type(None)})
"""What JSON holds as it is: four of five values, told by their type alone before all else is asked."""

_findings: TypeAdapter[tuple[Finding, ...]] = TypeAdapter(tuple[Finding, ...])


def digest(*pieces: bytes) -> bytes:
    """Return the digest of some bytes, with their borders."""
    made = blake2b(digest_size=DIGEST)
    for piece in pieces:
        made.update(len(piece).to_bytes(8, "big") + piece)
    return made.digest()


def text(value: Any) -> bytes:
    """Return a value as JSON without what is volatile, always the same bytes for the same facts."""
    return json.dumps(fixed(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def squeezed(body: bytes) -> bytes:
    """Return a text as it lies in the file."""
    return zlib.compress(body, 9)


def loaded(body: bytes) -> Any:
    """Return the value of a text that lies in the file."""
    return json.loads(zlib.decompress(body))


def parts(host: HostResult, found: Sequence[Finding]) -> dict[str, bytes]:
    """Return the texts of a host: its head, its facts and its findings, by name; None and nothing have none."""
    texts = {"head": text({name: getattr(host, name) for name in HEAD})}
    for name in FACTS:
        value = getattr(host, name)
        if value is not None:
            texts[name] = text(value)
    if found:
        texts["findings"] = text([item.model_dump(mode="json", exclude_defaults=True) for item in found])
    return texts


def mark(name: str, verdict: str, texts: Mapping[str, bytes]) -> bytes:
    """Return what tells one way in which a host was found from all others."""
    pieces = [piece for part in sorted(texts) for piece in (part.encode(), texts[part])]
    return digest(name.encode(), verdict.encode(), *pieces)


def restored(name: str, verdict: str, texts: Mapping[str, Any], attempts: int, seconds: float) -> HostResult:
    """Return the host's result as it was, without what is volatile; ``texts`` are loaded."""
    none: dict[str, Any] = {"system": None, "gpus": {}, "toolkits": (), "venvs": (), "caches": None}
    facts = {key: texts.get(key, value) for key, value in none.items()}
    head = {key: texts["head"].get(key) for key in HEAD}
    head["groups"] = tuple(head["groups"] or ())
    return HostResult.model_validate(
        {
            "name": name, "verdict": verdict, "attempts": attempts, "seconds": seconds, "processes": None,
            **head, **facts,
        }
    )  # fmt: skip


def findings(value: Any) -> tuple[Finding, ...]:
    """Return findings out of their loaded text; None means that there were none."""
    return _findings.validate_python(value or ())


def fixed(value: Any) -> Any:
    """Return a record as plain values: without what is volatile, and without what is as the record begins."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is tuple or kind is list:
        return [fixed(item) for item in value]
    if isinstance(value, BaseModel):
        held = value.__dict__
        return {
            name: item if type(item) in PLAIN else fixed(item)
            for name, start in _kept(type(value))
            if (item := held[name]) is not start and item != start
        }
    if isinstance(value, Mapping):
        return {str(key): fixed(item) for key, item in value.items()}
    if isinstance(value, tuple | list):  # named tuples
        return [fixed(item) for item in value]
    return value


@lru_cache(maxsize=64)
def _kept(model: type[BaseModel]) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a record that are stored, each with its default."""
    found = []
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        if not (isinstance(extra, dict) and extra.get("fact") == "volatile"):
            found.append((name, _NOTHING if field.is_required() else field.get_default(call_default_factory=True)))
    return tuple(found)


_NOTHING = object()
