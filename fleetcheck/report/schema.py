"""The JSON Schema of the document, made from the records; ``run-1.schema.json`` beside it is what ships.

Make the file again: ``python -m fleetcheck.report.schema > fleetcheck/report/run-1.schema.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from fleetcheck.run import SCHEMA, Run

FILE = "run-1.schema.json"


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
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{SCHEMA.replace('/', ':')}",
        **body,
    }


def text(schema: Mapping[str, Any]) -> str:
    """Return a schema as the shipped file holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=True) + "\n"


def shipped() -> str:
    """Return the text of the schema file that ships with the package."""
    return files("fleetcheck.report").joinpath(FILE).read_text(encoding="ascii")


if __name__ == "__main__":
    sys.stdout.write(text(run_schema()))
