"""The embedded fleet: nine hosts of this machine that the very code which audits production can audit.

In: an empty folder. Out: an inventory whose targets are real SSH servers on loopback, and the settings to reach
them. No GPU, sshd, root or network is needed, and nothing is left when the context ends but the folder.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Self

import paramiko

from fleetcheck.demo.hosts import HOSTS, UNREACHABLE
from fleetcheck.demo.server import ADDRESS, Door, SshServer
from fleetcheck.inventory.load import load
from fleetcheck.inventory.model import Inventory, Target
from fleetcheck.remote.settings import NO_CONFIG, Limits, Settings
from fleetcheck.report.further import DEMO

SOURCE = DEMO


class Fleet:
    """``with Fleet(folder) as fleet:`` audit ``fleet.inventory`` with ``fleet.settings``."""

    inventory: Inventory
    settings: Settings

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._open(stack)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def _open(self, stack: contextlib.ExitStack) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        key = paramiko.ECDSAKey.generate()
        self._key_file = self._folder / "client_key"
        key.write_private_key_file(str(self._key_file))
        self._known_hosts = self._folder / "known_hosts"
        server = stack.enter_context(SshServer(key))
        ports = {name: self._serve(server, name) for name in HOSTS}
        ports[UNREACHABLE] = stack.enter_context(_closed_port())
        shipped = load(str(files("fleetcheck.demo").joinpath("inventory.yaml")))
        targets = tuple(self._target(target, ports[target.name]) for target in shipped.targets)
        self.inventory = shipped.model_copy(update={"source": SOURCE, "targets": targets})
        self.settings = Settings(
            limits=Limits(smi=2.0),
            workers=len(targets),
            ssh_config=NO_CONFIG,
            known_hosts=(str(self._known_hosts),),
        )

    def _serve(self, server: SshServer, name: str) -> int:
        root = self._folder / "hosts" / name
        HOSTS[name](root, name)
        host_key = paramiko.ECDSAKey.generate()
        home = root / "root"
        environment = {"PATH": os.defpath, "HOME": str(home), "USER": "audit", "LANG": "C"}
        port = server.open(Door(host_key, home, environment))
        with self._known_hosts.open("a") as file:
            file.write(f"[{ADDRESS}]:{port} {host_key.get_name()} {host_key.get_base64()}\n")
        return port

    def _target(self, target: Target, port: int) -> Target:
        return target.model_copy(
            update={
                "address": ADDRESS,
                "port": port,
                "identity_file": str(self._key_file),
                "known_hosts": str(self._known_hosts),
                "sysroot": str(self._folder / "hosts" / target.name),
            }
        )


@contextlib.contextmanager
def _closed_port() -> Iterator[int]:
    """Hold a port on which nothing listens, so that no other program can take it meanwhile."""
    with socket.socket() as held:
        held.bind((ADDRESS, 0))
        yield held.getsockname()[1]
