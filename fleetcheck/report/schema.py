"""The JSON Schemas of the document and of a line of jsonl, made from the records; files beside it are what ships.

Make them again: ``python -m fleetcheck.report.schema``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from fleetcheck.rules.finding import Finding
from fleetcheck.run import SCHEMA, HostResult, Run, RunInfo, Summary

FILE = "run-1.schema.json"
LINE_FILE = "line-1.schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Document(GenerateJsonSchema):
    """Every key is always written, so every key is required; a title that repeats the key tells nothing."""

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ARG002 pydantic's signature
        return True

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 pydantic's signature
        return False


def run_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the JSON document.

    Objects admit keys that it does not name: newer versions of the same document may hold more.
    """
    body = Run.model_json_schema(by_alias=True, schema_generator=_Document, mode="serialization")
    return {
        "$schema": _DIALECT,
        "$id": f"urn:{SCHEMA.replace('/', ':')}",
        **body,
    }


def line_schema() -> dict[str, Any]:
    """Return the JSON Schema of one line of jsonl: the object that its ``type`` names, and that key."""
    kinds: dict[str, tuple[type[BaseModel], dict[str, Any]]] = {
        "run": (RunInfo, {"schema": {"const": SCHEMA}}),
        "host": (HostResult, {}),
        "finding": (Finding, {}),
        "summary": (Summary, {"finished": {"type": ["string", "null"]}, "complete": {"type": "boolean"}}),
    }
    chosen: list[dict[str, Any]] = []
    shared: dict[str, Any] = {}
    for kind, (model, more) in kinds.items():
        body = model.model_json_schema(by_alias=True, schema_generator=_Document, mode="serialization")
        shared |= body.pop("$defs", {})
        properties = {"type": {"const": kind}, **more, **body["properties"]}
        chosen.append({**body, "properties": properties, "required": list(properties)})
    return {"$schema": _DIALECT, "$id": f"urn:{SCHEMA.replace('/', ':')}:line", "oneOf": chosen, "$defs": shared}


def text(schema: Mapping[str, Any]) -> str:
    """Return a schema as the shipped file holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=True) + "\n"


def shipped(file: str = FILE) -> str:
    """Return the text of a schema file that ships with the package."""
    return files("fleetcheck.report").joinpath(file).read_text(encoding="ascii")


if __name__ == "__main__":
    here = Path(__file__).parent
    (here / FILE).write_text(text(run_schema()), encoding="ascii")
    (here / LINE_FILE).write_text(text(line_schema()), encoding="ascii")
