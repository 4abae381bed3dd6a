"""Options of the commands that reach hosts, and the settings that they make. Light: ``--help`` imports it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fleetcheck.errors import InputError, Problem

if TYPE_CHECKING:
    from fleetcheck.remote.settings import Settings

LIMITS = ("connect", "banner", "auth", "channel", "smi", "host", "run")
_DEFAULTS = "connect 10, banner 15, auth 20, channel 15, smi 60, host 120"
"""As in :class:`fleetcheck.remote.settings.Limits`, which replay must not import."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


class LimitType(click.ParamType[Any]):
    """``NAME=SECONDS``."""

    name = "name=seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """Split and check a limit. Fails where the name is unknown or the seconds are not above 0."""
        if isinstance(value, tuple):
            return value
        name, _, seconds = str(value).partition("=")
        if name not in LIMITS:
            self.fail(f"{name!r} is not a limit; limits are {', '.join(LIMITS)}", param, ctx)
        try:
            limit = float(seconds)
        except ValueError:
            limit = -1.0
        if not 0 < limit < 1e9:
            self.fail(f"{value!r}: seconds must be a number above 0", param, ctx)
        return name, limit


def reach_options(command: _Command) -> _Command:
    """Add the options that :func:`settings` takes."""
    options = (
        click.option(
            "--workers", type=click.IntRange(1, 1024),
            help="Hosts looked at side by side, 64 unless told otherwise.",
        ),
        click.option(
            "--limit", "limits", type=LimitType(), multiple=True, metavar="NAME=SECONDS",
            help=f"Change a limit. They are, with their defaults in seconds: {_DEFAULTS}, and run, which is the "
            "whole run's: none, with audit --cron 1800. Repeatable.",
        ),
        click.option(
            "--accept-new", is_flag=True,
            help="Record the key of a host never seen before. A changed key is refused.",
        ),
        click.option(
            "--deep", is_flag=True,
            help="Import FlashInfer for real too, without GPU, in a scratch folder that is removed.",
        ),
        click.option(
            "--ssh-config", metavar="FILE",
            help="Read this ssh config instead of the user's; none reads no config.",
        ),
        click.option(
            "--known-hosts", type=click.Path(path_type=Path), multiple=True, metavar="FILE",
            help="Trust the host keys of this file instead of the configured ones. Repeatable.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def settings(options: dict[str, Any]) -> Settings:
    """Take the options of :func:`reach_options` out of a command's keyword arguments."""
    from fleetcheck.remote.settings import NO_CONFIG, Limits, Settings

    workers, config = options.pop("workers"), options.pop("ssh_config")
    trusted = options.pop("known_hosts")
    chosen: dict[str, Any] = {
        "limits": Limits(**dict(options.pop("limits"))),
        "accept_new": options.pop("accept_new"),
        "deep": options.pop("deep"),
    }
    if workers is not None:
        chosen["workers"] = workers
    if config is not None:
        if config != NO_CONFIG and not Path(config).is_file():
            raise InputError([Problem("--ssh-config", None, f"{config} is not a file")])
        chosen["ssh_config"] = config
    if trusted:
        chosen["known_hosts"] = tuple(str(path) for path in trusted)
    return Settings(**chosen)
