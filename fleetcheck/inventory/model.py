"""The words of an inventory, validated: targets, environments to look at, expectations, policy."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator
from pydantic_core import PydanticCustomError

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Discovery = Literal["running", "usual"]
RuleLevel = Literal["info", "warning", "error", "critical", "ignore"]
"""What a rule's findings count as: a severity, or nothing."""
Kind = Literal["native", "ansible", "ssh_config", "names"]
_VERSIONS = ("driver", "flashinfer", "sglang", "vllm", "torch_cuda", "nvcc", "venv_python")
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Model(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


def whole_number(value: Any) -> Any:
    """Refuse what pydantic would turn into a number: ``"8"``, ``022``, ``yes``."""
    if isinstance(value, (bool, str)):
        raise PydanticCustomError("not_allowed", "not a whole number")
    return value


def number_as_text(value: Any) -> Any:
    """Take a whole number for text, as YAML gives it for ``torch_cuda: 13``."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def one_day(value: Any) -> Any:
    """Refuse what pydantic would turn into a date beside ``YYYY-MM-DD``: times, seconds since the epoch."""
    if isinstance(value, date) or (isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value)):
        return value
    raise PydanticCustomError("not_allowed", "not a day, written YYYY-MM-DD")


def version_range(value: str) -> str:
    """Refuse what is neither a PEP 440 range nor a bare version, which means ``==``."""
    try:
        Version(value)
    except InvalidVersion:
        try:
            SpecifierSet(value)
        except InvalidSpecifier:
            raise PydanticCustomError("not_allowed", "not a PEP 440 range") from None
    return value


class Expect(Model):
    """What a host, or one of its environments, should look like. An absent key expects nothing.

    ``driver``, ``flashinfer``, ``sglang``, ``vllm``, ``torch_cuda``, ``nvcc`` and ``venv_python`` are PEP 440
    ranges (``>=580.95.05``, ``==0.6.18``, or a bare version); ``files`` maps a path to its sha256.
    """

    gpus: Annotated[int, Field(ge=0, le=64)] | None = None
    gpu_name: Text | None = None
    compute_capability: Annotated[str, StringConstraints(pattern=r"^\d{1,2}\.\d$")] | None = None
    driver: Text | None = None
    csrc_dir: Text | None = None
    flashinfer: Text | None = None
    sglang: Text | None = None
    vllm: Text | None = None
    torch_cuda: Text | None = None
    nvcc: Text | None = None
    allreduce_fusion: Literal["any", "required", "forbidden"] | None = None
    link: Text | None = None
    venv_python: Text | None = None
    files: dict[str, Sha256] | None = None

    _number_as_text = field_validator("gpu_name", "link", *_VERSIONS, mode="before")(number_as_text)
    _whole_number = field_validator("gpus", mode="before")(whole_number)

    @field_validator(*_VERSIONS)
    @classmethod
    def _range(cls, value: str | None) -> str | None:
        return None if value is None else version_range(value)

    def merged(self, nearer: Expect) -> Expect:
        """Return these expectations with every key that ``nearer`` sets taken from it."""
        return self.model_copy(update=nearer.model_dump(exclude_none=True)) if nearer.model_fields_set else self


class VenvItem(Model):
    """One entry of ``venvs:``: a path or a glob on the host, with expectations of its own."""

    path: Annotated[str, StringConstraints(pattern=r"^[/~]", min_length=1)]
    expect: Expect = Expect()

    @property
    def is_glob(self) -> bool:
        """True where the path names several environments (``/opt/venvs/*``)."""
        return any(mark in self.path for mark in "*?[")


ScanPath = Annotated[str, StringConstraints(pattern=r"^[/~][^\n\t]*$", min_length=1)]


class Target(Model):
    """One host, resolved: how to reach it, what to look at, what to expect. Pickles.

    ``None`` in a connection key means that the user's ssh config decides. ``proxy_command`` is a shell command
    with ssh's tokens, as ``ProxyCommand``; ``ssh_config`` is the config to read for this host in place of the
    user's own (``none``: no config); ``connection`` is ``ssh``, ``local`` (this machine), or another of
    Ansible's, which cannot be audited. ``sysroot`` puts the host's ``/proc``, ``/sys``, tools and environments
    under a folder, so that a mounted image or a container's root can be audited; tests and the demo use it.
    """

    name: Text
    address: Text | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    user: Text | None = None
    identity_file: Text | None = None
    known_hosts: Text | None = None
    proxy_jump: Text | None = None
    proxy_command: Text | None = None
    ssh_config: Text | None = None
    connection: Text = "ssh"
    sudo: bool = False
    sysroot: str = ""
    groups: tuple[str, ...] = ()
    venvs: tuple[VenvItem | Discovery, ...] = ("running", "usual")
    scan: tuple[ScanPath, ...] = ()
    """Files, folders and globs to search for paths of CUDA sources, beside what starts the servers."""
    expect: Expect = Expect()
    rules: dict[str, RuleLevel] = Field(default_factory=dict)
    """What findings count as, by rule, family, or glob over rules."""


class Waiver(Model):
    """A finding that is accepted, with the reason and the last day on which it is."""

    rule: Text
    hosts: Text
    reason: Text
    until: date

    _one_day = field_validator("until", mode="before")(one_day)


class Maintenance(Model):
    """Hosts to leave alone, with the reason and the last day of it."""

    hosts: Text
    reason: Text
    until: date

    _one_day = field_validator("until", mode="before")(one_day)


class Inventory(Model):
    """A whole inventory, resolved. ``source`` is where it came from, as the user named it, ``kind`` what it is."""

    source: str
    kind: Kind = "native"
    targets: tuple[Target, ...]
    waivers: tuple[Waiver, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
