"""Where each value of a host comes from: the file and line, or who decides it.

In: what was loaded, and a target. Out: :class:`Origin` records, in the order of the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fleetcheck.inventory import resolve
from fleetcheck.inventory.model import Expect, Target

SSH = ("address", "port", "user", "identity_file", "known_hosts", "proxy_jump", "proxy_command", "ssh_config")
"""The keys that ssh config decides where no inventory does."""


class Origin(NamedTuple):
    """One value: its key, the value as text, and where it is from."""

    key: str
    value: str
    place: str


def of_target(target: Target, places: Mapping[str, str]) -> list[Origin]:
    """Return an origin for every key; ``places`` maps ``host``, ``groups`` and the keys that are set."""
    rows = [Origin("host", target.name, places.get("host", ""))]
    if target.groups:
        rows.append(Origin("groups", ", ".join(target.groups), places.get("groups", places.get("host", ""))))
    for key in Target.model_fields:
        if key in ("name", "groups", "expect", "rules"):
            continue
        value = getattr(target, key)
        if key == "venvs":
            text = ", ".join(item if isinstance(item, str) else item.path for item in value)
        elif key == "scan":
            text = ", ".join(value)
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value or "")
        if key not in places and key in ("sysroot", "scan"):
            continue
        rows.append(Origin(key, text, places.get(key) or ("ssh config" if key in SSH else "default")))
    for key in Expect.model_fields:
        value = getattr(target.expect, key)
        if value is not None:
            rows.append(Origin(f"expect.{key}", str(value), places.get(f"expect.{key}", places.get("expect", ""))))
    for pattern, level in target.rules.items():
        rows.append(Origin(f"rules.{pattern}", level, places.get(f"rules.{pattern}", places.get("rules", ""))))
    return rows


def native(fleet: resolve.Fleet, target: Target) -> dict[str, str]:
    """Return the places of a target of the native format."""
    groups = resolve.nearest_groups(fleet, target.groups)
    own_place, own = fleet.own.get(target.name, (None, {}))
    above = resolve.over(fleet.defaults, {key: near[0].settings[key] for key, near in groups.items()})
    places = {"host": _at(fleet.hosts[target.name])}
    if target.groups:
        places["groups"] = ", ".join(_at(fleet.groups[group].place) for group in target.groups)
    for key in resolve.over(above, own):
        if own_place is not None and key in own:
            place = own_place
        elif key in groups:
            place = groups[key][0].place
        elif fleet.defaults_at is not None:
            place = fleet.defaults_at
        else:
            continue
        places[key] = _at(place, *key.split(".", 1))
    return places


def _at(place: resolve.Place, *below: str) -> str:
    part, loc = place
    line, column = part.at(*loc, *below)
    return f"{part.name}:{line}:{column}"


def ansible(
    source: str, variables: Mapping[str, str], target: Target, path: Path | None, text: str | None
) -> dict[str, str]:
    """Return the places of a target of an Ansible inventory.

    ``path`` is the inventory that Ansible read, whose files are searched for the variable; ``text`` is the JSON
    where that itself was given.
    """
    from fleetcheck.inventory import ansible_where  # noqa: PLC0415  (only who asks for origins needs the search)

    places = {"host": source, "groups": source}
    for key, variable in variables.items():
        if text is not None:
            found = ansible_where.in_listing(source, text, target.name, variable)
        else:
            found = ansible_where.in_files(path, variable, target.name, target.groups) if path else []
        places[key] = f"{variable} in {' or '.join(found) if found else source}"
    return places
