"""fleetcheck audits a whole fleet of GPU hosts over SSH, without touching them.

In: an inventory of hosts. Out: a :class:`fleetcheck.run.Run`, the record of one audit::

    import fleetcheck

    inventory = fleetcheck.load_inventory("inventory.yaml")
    run = fleetcheck.audit_hosts(inventory)
    print(run.summary.ok, "of", run.summary.hosts)
"""

# Whatever is imported here, __future__ too, takes time in which Ctrl-C would show a traceback: nothing is.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fleetcheck.inventory.model import Inventory
    from fleetcheck.remote.settings import Settings
    from fleetcheck.run import Run
    from fleetcheck.version import __version__

__all__ = ["__version__", "audit_hosts", "load_inventory"]


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fleetcheck.version import __version__ as version  # noqa: PLC0415  see TYPE_CHECKING

    return version


def load_inventory(source: "str | Path | None" = None) -> "Inventory":
    """Load an inventory: a file, a folder, or names. Raises InputError with every problem at once."""
    from fleetcheck.inventory.load import load  # noqa: PLC0415  heavy, and the CLI starts here

    return load(source)


def audit_hosts(
    inventory: "Inventory", hosts: "Sequence[str]" = (), *, settings: "Settings | None" = None
) -> "Run":
    """Audit the hosts that match (no patterns: all) and return the record. For events: :mod:`fleetcheck.audit`."""
    from fleetcheck.audit import audit  # noqa: PLC0415
    from fleetcheck.inventory.selection import select  # noqa: PLC0415
    from fleetcheck.judge import Policy  # noqa: PLC0415
    from fleetcheck.run import Finished  # noqa: PLC0415

    targets = select(inventory, hosts)
    events = audit(targets, inventory=inventory.source, policy=Policy.of(inventory), settings=settings)
    run = [event.run for event in events if isinstance(event, Finished)]
    return run[0]
