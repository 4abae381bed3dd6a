"""ClusterShell's own groups (``@rack4``, ``@slurm:gpu``), where its configuration names some.

In: a group's name. Out: the hosts of it. A group of a YAML file is read; one behind a command of ``groups.conf``
is only asked for with ``--inventory-exec``.
"""

from __future__ import annotations

import re
from pathlib import Path

from fleetcheck.inventory.nodes import named
from fleetcheck.inventory.wording import meant, shown

_GROUP = re.compile(r"(?:([A-Za-z0-9_.-]+):)?([A-Za-z0-9_.-]+)")
"""What goes into a command's text must hold nothing that a shell reads: ClusterShell does not quote it."""


def members(text: str, *, execute: bool) -> list[str]:
    """Return the hosts of the group ``text``, written without its ``@``. Raises ValueError with one sentence."""
    from ClusterShell.Defaults import config_paths  # noqa: PLC0415  (only a group needs it)
    from ClusterShell.NodeSet import NodeSet, NodeSetException  # noqa: PLC0415
    from ClusterShell.NodeUtils import (  # noqa: PLC0415
        GroupResolverConfig,
        GroupResolverError,
        GroupSourceError,
        UpcallGroupSource,
    )

    match = _GROUP.fullmatch(text)
    if match is None:
        raise ValueError(f"@{shown(text)} is neither a file nor the name of a ClusterShell group")
    configs = [path for path in config_paths("groups.conf") if Path(path).exists()]
    if not configs:
        raise ValueError(f"no file is called {shown(text)}, and ClusterShell has no groups.conf")
    resolver = GroupResolverConfig(config_paths("groups.conf"))
    try:
        source = resolver._source(match[1])
        if isinstance(source, UpcallGroupSource) and not execute:
            raise ValueError(
                f"no file is called {shown(text)}, and the ClusterShell group source {source.name} runs a "
                "command: allow it with --inventory-exec"
            )
        found = resolver.group_nodes(match[2], match[1])
        names = list(NodeSet(",".join(found), resolver=resolver)) if found else []
        if not names:
            known = tuple(resolver.grouplist(match[1])) if not isinstance(source, UpcallGroupSource) else ()
            raise ValueError(f"no ClusterShell group is called {shown(text)}{meant(match[2], known)}")
    except (GroupResolverError, GroupSourceError, NodeSetException, OSError) as error:
        raise ValueError(f"@{shown(text)}: no file, and ClusterShell says: {shown(str(error))}") from error
    return named(",".join(names))
