"""What a fact is: a frozen record whose fields say how they may be compared."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

VOLATILE = Field(json_schema_extra={"fact": "volatile"})
IDENTITY = Field(json_schema_extra={"fact": "identity"})

Basis = Literal["running", "resolved", "recorded", "imported", "guessed"]


class Fact(BaseModel):
    """A frozen fact. Unknown keys are refused where facts are made, ignored where old documents are read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def model_post_init(self, context: Any, /) -> None:  # noqa: ARG002  # pydantic's signature
        """Forget which fields were given: a set a record, half of what a thousand hosts' facts take."""
        object.__setattr__(self, "__pydantic_fields_set__", _FORGOTTEN)


_FORGOTTEN: set[str] = set()
"""Shared by all facts: a frozen record adds nothing to it, and a copy of one copies it."""


def kind_of(model: type[Fact], name: str) -> Literal["plain", "volatile", "identity"]:
    """Return how the field ``name`` of ``model`` may be compared."""
    extra: Any = model.model_fields[name].json_schema_extra
    kind = extra.get("fact") if isinstance(extra, dict) else None
    return "volatile" if kind == "volatile" else "identity" if kind == "identity" else "plain"
