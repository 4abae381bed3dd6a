"""The entry of the program: ``python -m fleetcheck``, and the console script.

Next to nothing is imported before an interrupt is taken care of: until the command line has handlers of its own,
Python would answer Ctrl-C with a traceback of whatever is imported just then.
"""

import os

try:
    import signal
except KeyboardInterrupt:
    os._exit(130)


def _leave(_signal: int, _frame: object) -> None:
    os._exit(130)  # nothing is begun that could be left in pieces


def main() -> None:
    """Run the command line, which ends the process with its exit code."""
    # Where SIGINT is ignored (nohup, a shell's background job), it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    from fleetcheck.cli.main import main as run  # noqa: PLC0415  the handler comes first

    run()


if __name__ == "__main__":
    main()
