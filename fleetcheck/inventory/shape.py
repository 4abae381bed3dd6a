"""The native inventory as it is written: sections, groups, settings, before anything is resolved.

In: plain values of one file. Out: a :class:`Document`. What the keys mean once resolved is in
:mod:`fleetcheck.inventory.model`; what an error says is in :mod:`fleetcheck.inventory.explain`.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from fleetcheck.inventory.model import Expect, Model, RuleLevel, Text, VenvItem, one_day
from fleetcheck.inventory.nodes import check_name, named
from fleetcheck.inventory.wording import NO_SECRETS, holds_password

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
DISCOVERY: tuple[Literal["running"], Literal["usual"]] = ("running", "usual")
OF_THE_HOST = ("gpus", "gpu_name", "compute_capability", "driver", "link")
"""Expectations that one environment cannot have."""
_USER = re.compile(r"[^\s-]\S*")
_HOP = re.compile(r"(?:[^\s@:,-][^\s@:,]*@)?(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*)(?::[0-9]{1,5})?")


class Shape(Model):
    """A part of the file. A plain number is taken for text where text is due (``user: 1000``)."""

    model_config = ConfigDict(coerce_numbers_to_str=True)


def _list(value: Any) -> Any:
    return [value] if isinstance(value, (str, int)) and not isinstance(value, bool) else value


def _nodes(value: Any) -> list[str]:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise PydanticCustomError("not_allowed", "not a nodeset")
    return named(value)


def _matching(pattern: re.Pattern[str]) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise PydanticCustomError("not_allowed", "not of the right form")
        return value

    return AfterValidator(check)


Nodes = Annotated[list[str], BeforeValidator(_nodes)]
Hosts = Annotated[list[Nodes], BeforeValidator(_list), Field(min_length=1)]
Patterns = Annotated[list[Text], BeforeValidator(_list), Field(min_length=1)]
RulePattern = Annotated[Text, _matching(re.compile(r"[a-z0-9*?\[\]!-]+"))]
ScanEntry = Annotated[Text, _matching(re.compile(r"[/~][^\n\t]*"))]
Path = Annotated[Text, _matching(re.compile(r"[^-\n\t][^\n\t]*"))]


class VenvEntry(Shape):
    """One item of ``venvs:``; a bare text is its path. ``running`` and ``usual`` stand in ``path`` too."""

    path: Annotated[Text, _matching(re.compile(r"running|usual|[/~][^\n\t]*"))]
    expect: Expect = Expect()

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _discovered(self) -> VenvEntry:
        if self.path in DISCOVERY and self.expect.model_fields_set:
            raise ValueError(f"{self.path} takes no expect; put it on the host or its group")
        for key in OF_THE_HOST:
            if key in self.expect.model_fields_set:
                raise ValueError(f"expect.{key} is of the host; put it on the host or its group")
        return self

    def resolved(self) -> VenvItem | Literal["running", "usual"]:
        """Return the item as a target holds it."""
        for word in DISCOVERY:
            if self.path == word:
                return word
        return VenvItem(path=self.path, expect=self.expect)


class Settings(Shape):
    """What defaults, a group, or a host may set. Only the keys that are given count."""

    address: Annotated[Text, AfterValidator(check_name)] = ""
    port: Annotated[int, Field(strict=True, ge=1, le=65535)] = 22
    user: Annotated[Text, _matching(_USER)] = ""
    identity_file: Path = ""
    known_hosts: Path = ""
    proxy_jump: Annotated[Text, _matching(re.compile(rf"none|{_HOP.pattern}(?:,{_HOP.pattern})*"))] = ""
    proxy_command: Annotated[Text, _matching(re.compile(r"[^\n]+"))] = ""
    ssh_config: Path = ""
    connection: Annotated[Text, _matching(re.compile(r"[A-Za-z][A-Za-z0-9_.-]*"))] = "ssh"
    sudo: Annotated[bool, Field(strict=True)] = False
    sysroot: Annotated[Text, _matching(re.compile(r"/[^\n\t]*"))] = ""
    venvs: tuple[VenvEntry, ...] = ()
    scan: Annotated[tuple[ScanEntry, ...], BeforeValidator(_list)] = ()
    expect: Expect = Expect()
    rules: dict[RulePattern, RuleLevel] = Field(default_factory=dict)

    @field_validator("proxy_command")
    @classmethod
    def _no_password(cls, value: str) -> str:
        if holds_password(value):
            raise ValueError(f"holds a password; {NO_SECRETS}")
        return value

    @field_validator("user")
    @classmethod
    def _no_password_behind_a_user(cls, value: str) -> str:
        if ":" in value:  # passwd(5) parts its fields there: no login has one in its name
            raise ValueError(f"holds a password; {NO_SECRETS}")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Settings:
        if {"proxy_jump", "proxy_command"} <= self.model_fields_set:
            raise ValueError("proxy_jump and proxy_command exclude each other; give one")
        return self

    @field_validator("scan")
    @classmethod
    def _scanned_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for path in value:
            if value.count(path) > 1:
                raise ValueError(f"{path} is listed twice")
        return value

    @field_validator("venvs")
    @classmethod
    def _once(cls, value: tuple[VenvEntry, ...]) -> tuple[VenvEntry, ...]:
        paths = [entry.path for entry in value]
        for path in paths:
            if paths.count(path) > 1:
                raise ValueError(f"{path} is listed twice")
        return value


class Group(Settings):
    """Hosts and child groups, with what is common to them."""

    hosts: Hosts = Field(default_factory=list)
    children: Patterns = Field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all ``hosts``, a name as often as it is given."""
        return tuple(name for one in self.hosts for name in one)


UNREAD: dict[str, str] = {"rule": "unread", "hosts": "all", "reason": "unread", "until": "9999-12-31"}
"""What stands in for a wrong value of a waiver or a maintenance, so that its other values are still judged."""


class WaiverEntry(Shape):
    """One waiver; ``hosts`` are patterns of the selection grammar."""

    rule: Annotated[Text, _matching(re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*"))]
    hosts: Patterns
    reason: Text
    until: date

    _one_day = field_validator("until", mode="before")(one_day)


class MaintenanceEntry(Shape):
    """Hosts to leave alone; ``hosts`` are patterns of the selection grammar."""

    hosts: Patterns
    reason: Text
    until: date

    _one_day = field_validator("until", mode="before")(one_day)


class Document(Shape):
    """One file of an inventory."""

    defaults: Settings = Settings()
    groups: dict[str, Group] = Field(default_factory=dict)
    hosts: dict[str, Settings] = Field(default_factory=dict)
    waivers: tuple[WaiverEntry, ...] = ()
    maintenance: tuple[MaintenanceEntry, ...] = ()
