"""Standard output whose failures are told from all others, whoever writes: click prints help by itself."""

from __future__ import annotations

import io

from fleetcheck.cli.output import silence
from fleetcheck.errors import OutputError


class Stdout(io.TextIOWrapper):
    """Stands for Python's own stream. What fails is an OutputError; a reader that left, a BrokenPipeError."""

    def __init__(self, stream: io.TextIOWrapper, errors: str) -> None:
        encoding, buffered = stream.encoding, stream.line_buffering
        super().__init__(stream.detach(), encoding, errors, line_buffering=buffered)

    def write(self, text: str, /) -> int:
        """As ever. Raises OutputError."""
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritten(error) from None

    def flush(self) -> None:
        """As ever. Raises OutputError."""
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritten(error) from None


def _unwritten(error: OSError) -> OutputError:
    silence()
    return OutputError(f"standard output: {error.strerror or error}")
