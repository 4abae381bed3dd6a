"""The variables of one Ansible host: what of them says how to reach it, what to look at, what to expect.

In: a host's variables as ``ansible-inventory --list`` gives them. Out: settings of the inventory, each with the
variable that it comes from. What cannot be used is noted, by its name and never by a secret value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from fleetcheck.inventory import ssh_args
from fleetcheck.inventory.shape import Settings
from fleetcheck.inventory.wording import NO_SECRETS, holds_password, meant, shown

PREFIX = "fleetcheck_"
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "address": ("ansible_ssh_host", "ansible_host"),
    "port": ("ansible_ssh_port", "ansible_port"),
    "user": ("ansible_ssh_user", "ansible_user"),
    "identity_file": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
}
"""The variables of each key; as for Ansible the first that is set counts."""
ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_SSH = frozenset({"ssh", "smart", "paramiko", "paramiko_ssh"})
_TRUE, _FALSE = (
    frozenset({"yes", "true", "on", "1", "y", "t"}),
    frozenset({"no", "false", "off", "0", "n", "f", ""}),
)
_PASSWORD = re.compile(r"(?:^|_)(?:pass|passwd|password|passphrase)$", re.IGNORECASE)
_TEMPLATE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_SYSTEM = frozenset({"/", "/usr", "/usr/local", "/opt", "/usr/libexec", "/bin"})
_HOST_KEYS = ("ansible_host_key_checking", "ansible_ssh_host_key_checking")
HOST_KEYS = "host key settings are not obeyed: unknown and changed host keys are refused (see --accept-new)"
SECRETS = NO_SECRETS

Note = Callable[[str], None]


@dataclass(slots=True)
class Found:
    """The settings of one host by their key, and the variable that each comes from."""

    settings: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def put(self, key: str, value: Any, variable: str) -> None:
        """Set a key, where none that is nearer has set it."""
        if key not in self.settings:
            self.settings[key], self.variables[key] = value, variable


def read(name: str, given: Mapping[str, Any], *, problem: Note, warning: Note) -> Found:
    """Return the settings of the host ``name``; ``problem`` hears what is wrong, ``warning`` what is not used."""
    found = Found()
    values = _Values(name, given, problem)
    for key in given:
        if key.startswith(PREFIX):
            plain = key.removeprefix(PREFIX)
            if plain in Settings.model_fields:
                found.put(plain, values.whole(key), key)
            else:
                known = [PREFIX + one for one in Settings.model_fields]
                problem(f"{key}: unknown variable{meant(key, known)}; allowed: {', '.join(known)}")
    for key, variables in VARIABLES.items():
        for variable in variables:
            if variable in given:
                value = values.text(variable)
                if value is not None:
                    found.put(key, _port(value) if key == "port" else value, variable)
                break
    _connection(found, values)
    for variable in ARGUMENTS:
        if variable in given:
            _arguments(found, values, variable, problem, warning)
    if any(key in given and not values.truth(key) for key in _HOST_KEYS):
        warning(HOST_KEYS)
    _become(found, values, warning)
    _interpreter(found, values)
    return found


def secrets(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the variables that hold a readable password or private key, at any depth."""
    for path, value in _texts(given, ()):
        name = path[-1]
        if "{{" in value or not value:
            continue
        if (
            _PASSWORD.search(name)
            or "PRIVATE KEY-----" in value
            or (path[0].startswith("ansible_") and holds_password(value))
        ):
            yield ".".join(path)


def _texts(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        if "__ansible_vault" in value or len(path) > 20:
            return
        for key, inner in value.items():
            yield from _texts(inner, (*path, str(key)))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, path)
    elif path and isinstance(value, (str, int)) and not isinstance(value, bool):
        yield path, str(value)


class _Values:
    """Values of variables, with templates that only name another variable filled in."""

    def __init__(self, name: str, given: Mapping[str, Any], problem: Note) -> None:
        self.given = given
        self.problem = problem
        self._plain = {"inventory_hostname": name, "inventory_hostname_short": name.partition(".")[0]}

    def text(self, variable: str) -> str | None:
        """Return a text or number; None, noted, where it is a template that only Ansible could fill in."""
        value = self.whole(variable)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str):
            return value.strip()
        if value is not None:
            self.problem(f"{variable}: given {shown(str(value).lower())}; allowed: text; quote it if it is meant")
        return None

    def whole(self, variable: str) -> Any:
        """Return a value of any kind, as :meth:`text` does."""
        try:
            return self._filled(self.given[variable], 0)
        except LookupError as error:
            self.problem(f"{variable}: {error.args[0]}")
            return None

    def truth(self, variable: str) -> bool:
        """Return what Ansible takes a value for; what is neither true nor false is noted."""
        value = self.whole(variable)
        word = str(value).strip().lower()
        if word not in _TRUE | _FALSE and value is not None:
            self.problem(f"{variable}: given {shown(word)}; allowed: true or false")
        return word in _TRUE

    def _filled(self, value: Any, depth: int) -> Any:
        if isinstance(value, list):
            return [self._filled(one, depth) for one in value]
        if isinstance(value, Mapping):
            return {key: self._filled(one, depth) for key, one in value.items()}
        if not isinstance(value, str) or ("{{" not in value and "{%" not in value):
            return value
        whole = _TEMPLATE.fullmatch(value.strip())
        if whole is not None:
            return self._named(whole[1], value, depth)
        text = _TEMPLATE.sub(lambda match: str(self._named(match[1], value, depth)), value)
        if "{{" in text or "{%" in text:
            raise LookupError(
                f"{shown(value)} is a template, which ansible-inventory does not fill in; write the value"
            )
        return text

    def _named(self, name: str, value: str, depth: int) -> Any:
        found = self._plain.get(name, self.given.get(name))
        if found is None or depth > 10:
            raise LookupError(
                f"{shown(value)} is a template, and no variable of the host gives {name}; write the value"
            )
        return self._filled(found, depth + 1)


def _port(value: str) -> int | str:
    return int(value) if re.fullmatch(r"[1-9][0-9]{0,9}", value) else value


def _connection(found: Found, values: _Values) -> None:
    if "ansible_connection" not in values.given:
        return
    value = (values.text("ansible_connection") or "ssh").removeprefix("ansible.builtin.")
    if value not in _SSH:
        found.put("connection", value, "ansible_connection")


def _arguments(found: Found, values: _Values, variable: str, problem: Note, warning: Note) -> None:
    text = values.text(variable)
    if text is None:
        return
    try:
        args = ssh_args.parse(text)
    except ValueError as error:
        problem(f"{variable}: {error}")
        return
    for key, value in args.found.items():
        if key == "identity_file" and key in found.settings and found.settings[key] != value:
            warning(f"{variable}: -i is not used beside {found.variables[key]}")
        if key in ("proxy_jump", "proxy_command") and {"proxy_jump", "proxy_command"} & found.settings.keys():
            continue  # as for ssh, the first counts
        found.put(key, _port(value) if key == "port" else value, variable)
    if args.host_keys:
        warning(HOST_KEYS)
    if args.unused:
        warning(f"{variable}: {', '.join(dict.fromkeys(map(shown, args.unused)))} is not used")


def _become(found: Found, values: _Values, warning: Note) -> None:
    if "ansible_become" not in values.given or not values.truth("ansible_become"):
        return
    found.put("sudo", True, "ansible_become")
    for variable, usual in (("ansible_become_method", "sudo"), ("ansible_become_user", "root")):
        if variable in values.given and values.text(variable) not in (usual, f"ansible.builtin.{usual}", None):
            warning(f"{variable} is not used: the audit runs under sudo -n, as root")


def _interpreter(found: Found, values: _Values) -> None:
    """Look at the environment of the host's interpreter, too, where it is not the system's."""
    variable = "ansible_python_interpreter"
    value = values.given.get(variable)
    if not isinstance(value, str) or "{" in value or "venvs" in found.settings:
        return
    path = PurePosixPath(value)
    prefix = str(path.parent.parent)
    if path.is_absolute() and path.parent.name == "bin" and prefix not in _SYSTEM:
        found.put("venvs", [prefix, "running", "usual"], variable)
