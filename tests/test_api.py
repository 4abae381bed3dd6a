"""The public API: load an inventory, audit it, get a run; twice, since importing the room must not shadow it."""

from __future__ import annotations

import socket

import fleetcheck


def test_an_inventory_is_loaded_and_audited_twice() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    inventory = fleetcheck.load_inventory("gpu[01-02]")
    targets = tuple(
        target.model_copy(update={"address": "127.0.0.1", "port": port}) for target in inventory.targets
    )
    inventory = inventory.model_copy(update={"targets": targets})
    from fleetcheck.remote.settings import Settings

    for _ in range(2):
        run = fleetcheck.audit_hosts(inventory, ["gpu02"], settings=Settings(ssh_config="none", retries=0))
        assert [(host.name, host.outcome) for host in run.hosts] == [("gpu02", "unreachable")]
