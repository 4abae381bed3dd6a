"""The entry: a group that imports a command only when it runs, and the one place where errors become exit codes.

Exit codes: 0 all ok, 1 findings, 2 fleetcheck could not do its work, 3 some hosts not checked, 4 both 1 and 3,
130 interrupted. An internal error is a 2: it must never read as a verdict. With ``--format nagios`` whatever is no
verdict is a 3, UNKNOWN, with a status line on standard output: there a 2 would read as CRITICAL.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from fleetcheck.cli.interrupts import deaf
from fleetcheck.cli.options import Session
from fleetcheck.cli.output import emit, reader_left, silence
from fleetcheck.cli.stdout import Stdout
from fleetcheck.errors import FleetcheckError, InputError, OutputError
from fleetcheck.version import __version__

FAILED = 2
INTERRUPTED = 130

SUMMARIES = {
    "audit": "Look at hosts over SSH and judge them.",
    "hosts": "Show the hosts of an inventory, with every setting resolved.",
    "rules": "List the rules, or explain one: what it says, an example, what mends it, where to read on.",
    "show": "Show all that is known of one host, and what was not examined.",
    "report": "Show runs again, without SSH; several as one.",
    "replay": "Judge recorded evidence again, without SSH.",
    "history": "Show the runs that were stored, or how one host was found over time.",
    "doctor": "Say whether cron could run an audit, or go through one host step by step.",
    "schedule": "Print what runs an audit by the clock: a crontab line, or systemd units.",
    "diff": "Show what changed between runs of the history.",
    "baseline": "Write the expectations that good hosts meet, ready to paste into an inventory.",
    "compare": "Show what two hosts differ in.",
    "init": "Write a first inventory, with comments.",
    "demo": "Audit a fleet that lives on this machine.",
    "completion": "Print the script that completes options, hosts, groups and rules.",
}
"""Every command and its summary, so that ``--help`` imports none of them."""


class _ReaderLeft(Exception):  # noqa: N818 not an error: nobody reads standard output any more
    """Standard output is a pipe whose reader ended."""


@contextlib.contextmanager
def _output() -> Iterator[None]:
    # On EPIPE click ends with 1, which would read as findings; help for a closed stream it drops in silence.
    try:
        yield
    except BrokenPipeError:
        if not reader_left():
            raise RuntimeError("a broken pipe that is not standard output") from None
        raise _ReaderLeft from None
    except click.exceptions.Exit:
        if sys.stdout is None:
            raise OutputError("standard output is closed") from None
        raise


class LazyGroup(click.Group):
    """The commands of :data:`SUMMARIES`, each in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 click's signature
        """Return the names in the order in which help shows them."""
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 click's
        """Import a command; None where there is none of that name."""
        if cmd_name not in SUMMARIES:
            return None
        command: click.Command = import_module(f"fleetcheck.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 click's
        """Write the summaries without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments; ``--help`` prints in here."""
        with _output():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        with _output():
            return super().invoke(ctx)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show tracebacks and what the libraries log, on standard error.")
@click.version_option(__version__, prog_name="fleetcheck")
@click.pass_obj
def cli(session: Session, debug: bool) -> None:
    """Audit a fleet of GPU hosts over SSH: which FlashInfer sources, which GPUs, and do they fit.

    Exit codes: 0 all ok; 1 findings; 2 fleetcheck could not do its work (usage, inventory, output, internal
    error); 3 some hosts not checked; 4 both 1 and 3; 130 interrupted.
    """
    session.debug = debug


def run(args: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code. No traceback reaches the user, unless with ``--debug``."""
    session = Session(monitored=_monitored(sys.argv[1:] if args is None else args))
    interrupts = session.interrupts
    try:
        with interrupts.taken():
            code = cli.main(args, prog_name="fleetcheck", obj=session, standalone_mode=False)
            emit("")
            if interrupts.held and not session.monitored:  # a monitoring system was told the verdict already
                return INTERRUPTED
            return code if isinstance(code, int) else 0
    except _ReaderLeft:
        silence()
        return 0
    except (click.Abort, KeyboardInterrupt):
        return _say(session, ["interrupted"], INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        with contextlib.suppress(OSError):
            click.echo(error.format_message(), err=True)
        return FAILED
    except click.ClickException as error:
        return _say(session, [_one_line(error)], FAILED)
    except InputError as error:
        return _say(session, [str(problem) for problem in error.problems], FAILED, lead="")
    except FleetcheckError as error:
        return _say(session, str(error).splitlines(), FAILED)
    except Exception as error:  # noqa: BLE001 the last line of defence: any bug becomes one line and a 2
        if interrupts.seen:
            # pydantic-core turns an interrupt that comes while it builds a schema into an error of its own.
            return _say(session, ["interrupted"], INTERRUPTED)
        if session.debug:
            import traceback

            traceback.print_exc()
        if isinstance(error, FileNotFoundError) and not _stands():
            return _say(session, ["the current folder is gone; change to one that is there"], FAILED)
        what = f"{type(error).__name__}: {str(error)[:300]}"
        return _say(session, [f"internal error: {what}; run again with --debug to see where"], FAILED)


def main() -> NoReturn:
    """Run the program and end with its exit code."""
    _occupy()
    # A terminal that cannot show a character gets its number, not a crash.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = Stdout(sys.stdout, "backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    code = run()
    deaf()
    # What is left dies with the process; Python would look through all of it for circles first, 10 ms and more.
    gc.freeze()
    sys.exit(code)


def _occupy() -> None:
    """Open what is closed of 0, 1 and 2: the next file would get the number, and a child's output with it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _stands() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _one_line(error: click.ClickException) -> str:
    """Return what is wrong in one line, with the help that tells more, and the nearest command."""
    said = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if context is None:
        return said
    near = ""
    if isinstance(context.command, LazyGroup) and said.startswith("No such command"):
        from difflib import get_close_matches

        names = get_close_matches(said.split("'")[1], list(SUMMARIES), n=2, cutoff=0.5)
        near = f" Did you mean {' or '.join(names)}?" if names and "Did you mean" not in said else ""
    stop = "" if said.endswith((".", "?", "!")) else "."
    return f"{said}{stop}{near} See {context.command_path} --help."


def _monitored(args: Sequence[str]) -> bool:
    # Read before the options are parsed: where that fails, Nagios must not be told CRITICAL.
    pairs = zip(args, [*args[1:], ""], strict=False)  # no arguments: nothing stands before the last
    return any(arg == "--format=nagios" or (arg, after) == ("--format", "nagios") for arg, after in pairs)


def _say(session: Session, lines: Sequence[str], code: int, lead: str = "fleetcheck: ") -> int:
    from fleetcheck.report.text import clean  # what is wrong may quote a file of unknown origin

    for line in lines:
        # Standard error may be closed or full; the exit code still tells.
        with contextlib.suppress(OSError):
            click.echo(f"{lead}{clean(line, 2000)}", err=True)
    return _coded(session, lines, code)


def _coded(session: Session, lines: Sequence[str], code: int) -> int:
    """Return the code; a monitoring system reads why on standard output, and gets its own code."""
    if not session.monitored:
        return code
    from fleetcheck.report import nagios

    with contextlib.suppress(FleetcheckError):
        emit(nagios.unknown("; ".join(lines)))
    return nagios.CODES["UNKNOWN"]
