"""What the frameworks pin: the one release of FlashInfer that each was tested with, held against the installed."""

from __future__ import annotations

from collections.abc import Iterator

from fleetcheck.facts.records import FlashInfer, Framework, Venv
from fleetcheck.rules import text
from fleetcheck.rules.rule import Hit
from fleetcheck.rules.versions import admits, below, parse


def pinned(venv: Venv, found: FlashInfer, caller: Framework) -> Iterator[Hit]:
    """Yield the finding of a framework whose pin does not admit this FlashInfer, by what pip recorded of it."""
    pin, version = caller.pins.get("flashinfer-python"), found.recorded_version or found.version
    if pin is None or version is None or admits(pin, version) is not False:
        return
    least = pin.removeprefix("==")
    refuses = caller.name == "sglang" and parse(least) is not None and below(version, least)
    what = (
        "and ends at its start where FlashInfer is its attention backend"
        if refuses
        else "and was not tested with this one"
    )
    named = f"{text.brief(caller.name)} {text.brief(caller.version, '')}".rstrip()
    yield Hit(
        f"{named} in {text.brief(venv.path)} pins FlashInfer {text.brief(pin)}, {what}: {text.brief(version)}.",
        venv=venv.path,
        severity="error" if refuses else "warning",
        key=caller.name,
        expected=pin,
        seen=version,
        basis="recorded",
        remedy=(
            text.freeze(venv),
            f"{text.python(venv)} -m pip install --dry-run {text.quote(f'flashinfer-python{pin}')}",
            f"{text.python(venv)} -m pip install {text.quote(f'flashinfer-python{pin}')}{text.LIVE}",
            text.RESTART,
            f"Or install the {text.brief(caller.name)} that pins {text.brief(version)}.",
        ),
    )
