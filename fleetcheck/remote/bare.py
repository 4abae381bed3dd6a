"""Fabric's Connection and Config for one command, without what only tasks need.

Both are made once a host. With Invoke's whole tree of settings, and its way to find an attribute, a connection
costs 0.7 ms of CPU to be made, as much as its key exchange; here it costs 0.1 ms.
"""

from __future__ import annotations

from typing import Any

import fabric
import paramiko


class _Quick:
    """The attributes of Invoke's objects, found without a list of all names each time that one is set."""

    def __getattr__(self, key: str) -> Any:
        if key in ("_root", "_keypath", "_modify"):  # asked often and in vain; Invoke answers with a page of text
            raise AttributeError(key)
        return super().__getattr__(key)  # type: ignore[misc]  # that of the class beside this one

    def __setattr__(self, key: str, value: Any) -> None:
        if key in self.__dict__ or hasattr(type(self), key):
            object.__setattr__(self, key, value)
        else:
            super().__setattr__(key, value)


class Connection(_Quick, fabric.Connection):  # type: ignore[misc]  # Fabric has no types
    """A connection for one command."""


class _NoFile(paramiko.SSHConfig):
    """The settings of ssh that no file gives: the routes have them already."""

    def lookup(self, hostname: str) -> paramiko.SSHConfigDict:
        """Return what an empty file says of a host; Paramiko also asks for this machine's name each time."""
        return paramiko.SSHConfigDict(hostname=hostname)


_NO_FILE = _NoFile()


class Config(_Quick, fabric.Config):  # type: ignore[misc]  # as above
    """The settings of a connection that runs no tasks: each merge copies the whole tree, so it is a small one."""

    @staticmethod
    def global_defaults() -> dict[str, Any]:
        """Return what :class:`fabric.Connection` reads of its settings, at Fabric's defaults, without a user."""
        return {
            "authentication": {"identities": [], "strategy_class": None},
            "connect_kwargs": {},
            "forward_agent": False,
            "gateway": None,
            "inline_ssh_env": True,
            "port": 22,
            "ssh_config_path": None,
            "timeouts": {"connect": None},
            "user": None,
        }


def config() -> Config:
    """Return new settings, of no file: neither the user's for Fabric nor those for ssh are read.

    One a connection: Connection writes into the Config that it is given, and threads that share one break each
    other.
    """
    return Config(lazy=True, ssh_config=_NO_FILE)
