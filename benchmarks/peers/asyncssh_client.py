"""The cheapest honest audit with asyncssh: every host's answer into a file, one event loop, checked host keys.

    python asyncssh_client.py HOSTS SCRIPT OUT KEY KNOWN_HOSTS PORT USER CONCURRENCY

HOSTS holds a name and an address a line. As for the other clients, the script goes over stdin, which stays open
until the answer has ended.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncssh


async def look(
    name: str, address: str, script: bytes, out: Path, turn: asyncio.Semaphore, **options: object
) -> None:
    """Run the script on one host and keep what it answers; a failure leaves no file."""
    async with turn:
        try:
            async with asyncssh.connect(address, **options) as connection:
                process = await connection.create_process("exec /bin/sh", encoding=None)
                process.stdin.write(script)
                (out / name).write_bytes(await process.stdout.read())
        except (OSError, asyncssh.Error) as error:
            print(f"{name}: {error}", file=sys.stderr)


async def main() -> None:
    """Look at all hosts, so many side by side."""
    hosts, script, out, key, known_hosts, port, user, concurrency = sys.argv[1:]
    options = {
        "port": int(port), "username": user, "client_keys": [asyncssh.read_private_key(key)],
        "known_hosts": asyncssh.read_known_hosts(known_hosts), "config": None, "agent_path": None,
    }  # fmt: skip
    text, turn = Path(script).read_bytes(), asyncio.Semaphore(int(concurrency))
    pairs = [line.split() for line in Path(hosts).read_text().splitlines()]
    await asyncio.gather(*(look(name, address, text, Path(out), turn, **options) for name, address in pairs))


if __name__ == "__main__":
    asyncio.run(main())
