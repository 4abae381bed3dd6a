"""Download one source archive as pip's own finder finds it. ``pip download`` would run its build, this does not.

python tests/support/sdist.py NAME FILENAME FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from pip._internal.commands import create_command

CHUNK = 1 << 20


def main() -> int:
    """Run the command; return its exit status."""
    name, filename, folder = sys.argv[1:]
    command = create_command("download")
    # Index, certificates and credentials are those of the user's pip configuration.
    options, _ = command.parse_args(["--no-deps", "--no-binary", ":all:", "--disable-pip-version-check", name])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(  # type: ignore[attr-defined]
            options=options, session=session, ignore_requires_python=True
        )
        links = [found.link for found in finder.find_all_candidates(name) if found.link.filename == filename]
        if not links:
            print(f"error: no index that pip knows has {filename}", file=sys.stderr)
            return 1
        with session.get(links[0].url_without_fragment, stream=True) as answer:
            answer.raise_for_status()
            with (Path(folder) / filename).open("wb") as file:
                file.writelines(answer.iter_content(CHUNK))
    return 0


if __name__ == "__main__":
    sys.exit(main())
