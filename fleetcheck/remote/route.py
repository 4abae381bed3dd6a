"""How a host is reached: the inventory's keys over what the user's ssh config says, with every name filled in.

In: a :class:`fleetcheck.inventory.model.Target`. Out: a :class:`Route`, whose files, agent and gateways are
those that ``ssh`` would use. Nothing is connected to here.
"""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fleetcheck.inventory.model import Target
from fleetcheck.remote.route_files import agent_socket, certificates, identities, is_none, trusted_files
from fleetcheck.remote.settings import NO_CONFIG, Settings
from fleetcheck.remote.sshconfig import Options, RouteError, SshConfig
from fleetcheck.remote.sshconfig_paramiko import ParamikoConfig
from fleetcheck.remote.tokens import TokenError, expand, expand_path, host_tokens, is_host, is_user

__all__ = ["Resolver", "Route", "RouteError"]

MAX_GATEWAYS = 8
# What changes how ssh would connect or whom it would trust, and has no counterpart here.
_NOT_HONOURED = ("knownhostscommand", "pkcs11provider", "bindaddress", "bindinterface")
_HOST = r"\[([^\[\]@]+)\]|([^\[\]:@]+|[^\[\]@]*:[^\[\]@]*:[^\[\]@]*)"  # [address], a name, a bare IPv6 address
_HOP = re.compile(rf"(?:(.+)@)?(?:{_HOST})(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Route:
    """How to reach one host. Pickles, compares and hashes by value.

    ``host`` is the name or address to connect to. ``identity_files`` are private keys in the order to try them,
    those of ssh's defaults only where they exist; ``certificate_files`` belong to whichever key has their
    public key. ``identity_agent`` is the socket of the agent, None for no agent; with ``identities_only`` it
    may sign only with the keys of ``identity_files``. ``known_hosts_files`` are the user's, then the system's;
    a new key is recorded in the first. ``host_key_alias`` takes the place of host and port in them.
    ``proxy_jump`` holds the gateways in the order in which they are passed, as ``[user@]host[:port]``;
    ``proxy_command`` is a shell command, expanded. ``connect_timeout`` is in seconds. ``source`` says who read
    the ssh config. ``warnings`` are sentences for the user.
    """

    name: str
    host: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identity_agent: str | None = None
    identities_only: bool = False
    known_hosts_files: tuple[str, ...] = ()
    host_key_alias: str | None = None
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str | None = None
    connect_timeout: float | None = None
    hash_known_hosts: bool = False
    revoked_host_keys: str | None = None
    source: Literal["ssh", "paramiko", "none"] = "none"
    warnings: tuple[str, ...] = ()


class Resolver:
    """Finds routes. Threads may ask side by side; ``ssh -G`` runs once where the config says the same of every
    host.

    ``ssh`` is the OpenSSH client to ask; where there is none, Paramiko's parser has to do.
    """

    def __init__(self, settings: Settings, *, ssh: str = "ssh") -> None:
        self._settings = settings
        self._program = shutil.which(ssh)
        self._lock = threading.Lock()
        self._configs: dict[str | None, SshConfig | ParamikoConfig] = {}
        self._closed = False

    def route(self, target: Target) -> Route:
        """Return how to reach ``target``. Raises :class:`RouteError`, one sentence, within some seconds."""
        for text, good in ((target.name, is_host), (target.address, is_host), (target.user, is_user)):
            if text is not None and not good(text):
                raise RouteError(
                    f"{text!r} is not a {'host' if good is is_host else 'user'} name that ssh would take"
                )
        config = self._config_of(target)
        options = config.options(target.name, target.address, target.port, target.user)
        try:
            return self._assemble(target, options, config)
        except (TokenError, ValueError) as error:
            raise RouteError(f"{target.name}: {error}") from error

    def gateways(self, route: Route, ssh_config: str | None = None) -> tuple[Route, ...]:
        """Return the gateways of ``route`` in the order in which to pass them, each with its own user, port and
        keys.

        As for ssh, each is looked up by its name in the ssh config of the host (``ssh_config``: the inventory's),
        and only the first may be behind gateways of its own: they come before it. A ``proxy_command`` can remain
        on the first alone. Raises :class:`RouteError` for a circle and for more than eight.
        """
        passed: list[Route] = []
        hops = route.proxy_jump
        while hops:
            targets = [hop_target(hop).model_copy(update={"ssh_config": ssh_config}) for hop in hops]
            routes = [self.route(target) for target in targets]
            if any(hop in passed for hop in routes) or len(set(routes)) < len(routes):
                raise RouteError(f"{route.name}: its gateways go in a circle: {', '.join(hops)} comes up twice")
            passed = [*routes[:1], *(replace(hop, proxy_command=None) for hop in routes[1:]), *passed]
            if len(passed) > MAX_GATEWAYS:
                raise RouteError(f"{route.name}: more than {MAX_GATEWAYS} gateways")
            hops = routes[0].proxy_jump
        return tuple(replace(hop, proxy_jump=()) for hop in passed)

    def close(self) -> None:
        """End every ``ssh -G`` that still runs; nothing is resolved from now on."""
        with self._lock:
            self._closed = True
            for config in self._configs.values():
                config.close()

    def _config_of(self, target: Target) -> SshConfig | ParamikoConfig:
        path = self._settings.ssh_config if target.ssh_config is None else target.ssh_config
        if path is not None and path != NO_CONFIG:
            path = str(Path(path).expanduser())
        with self._lock:
            if path not in self._configs:
                made = ParamikoConfig(path) if self._program is None else SshConfig(self._program, path)
                if self._closed:
                    made.close()
                self._configs[path] = made
            return self._configs[path]

    def _assemble(self, target: Target, options: Options, config: SshConfig | ParamikoConfig) -> Route:
        """Put the inventory's keys over ``options`` and fill in what ``ssh -G`` leaves unexpanded."""
        one = {keyword: values[0] for keyword, values in options.items() if not is_none(values[0])}
        name, host, port, user = (options[keyword][0] for keyword in ("host", "hostname", "port", "user"))
        jump = one.get("proxyjump") if target.proxy_jump is None else target.proxy_jump
        if target.proxy_command is not None and target.proxy_jump is None:
            jump = None
        tokens = host_tokens(
            name, host, port=port, user=user, alias=one.get("hostkeyalias", name), jump=jump or ""
        )
        hops = _hops(jump, tokens)
        # As for ssh, a ProxyJump that is given first, `none` included, takes the place of a ProxyCommand.
        command = one.get("proxycommand") if target.proxy_jump is None and not hops else None
        if target.proxy_command is not None:
            command = None if is_none(target.proxy_command) else target.proxy_command
        warnings = [*config.warnings, *_not_honoured(one)]
        keys, certificate_files = _keys(target, options, tokens, warnings)
        return Route(
            name=target.name,
            host=host,
            port=int(port),
            user=user,
            identity_files=keys,
            certificate_files=certificate_files,
            identity_agent=agent_socket(options.get("identityagent", (None,))[0], tokens),
            identities_only=target.identity_file is not None or one.get("identitiesonly") == "yes",
            known_hosts_files=trusted_files(
                self._settings.known_hosts if target.known_hosts is None else (target.known_hosts,),
                options.get("userknownhostsfile", ("",))[0],
                options.get("globalknownhostsfile", ("",))[0],
            ),
            host_key_alias=one.get("hostkeyalias"),
            proxy_jump=hops,
            proxy_command=None if command is None else expand(command, tokens),
            connect_timeout=float(one["connecttimeout"]) if "connecttimeout" in one else None,
            hash_known_hosts=one.get("hashknownhosts") == "yes",
            revoked_host_keys=expand_path(one["revokedhostkeys"], tokens) if "revokedhostkeys" in one else None,
            source=config.source,
            warnings=tuple(warnings),
        )


def hop_target(text: str) -> Target:
    """Return the target that a gateway (``[user@]host[:port]``, ``ssh://…``) names, or raise ValueError."""
    found = _HOP.fullmatch(text.removeprefix("ssh://").removesuffix("/"))
    if found is None:
        raise ValueError(f"{text!r} is not a gateway: it must read [user@]host[:port]")
    user, bracketed, plain, port = found.groups()
    host = bracketed or plain
    if not is_host(host) or (user is not None and not is_user(user)):
        raise ValueError(f"{text!r} is not a gateway that ssh would take")
    if port is not None and not 0 < int(port[:6]) < 65536:
        raise ValueError(f"{text!r} is not a gateway: its port must be 1 to 65535")
    return Target(name=host, user=user, port=None if port is None else int(port))


def _hops(jump: str | None, tokens: Mapping[str, str]) -> tuple[str, ...]:
    if jump is None or is_none(jump):
        return ()
    hops = tuple(expand(hop.strip(), tokens) for hop in jump.split(","))
    for hop in hops:
        hop_target(hop)
    return hops


def _keys(
    target: Target, options: Options, tokens: Mapping[str, str], warnings: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return key and certificate files. A key that the inventory names is the only one, missing or not.

    As for ``ssh -i``, the config's certificates stay: one that was issued for that key is offered with it.
    """
    named = target.identity_file
    if named is None:
        keys = identities(options.get("identityfile", ()), tokens, warnings)
        return keys, certificates(options.get("certificatefile", ()), keys, tokens, warnings)
    keys = (str(Path(named).expanduser()),)
    if not Path(keys[0]).exists():
        warnings.append(f"the identity file {keys[0]} does not exist")
    return keys, certificates(options.get("certificatefile", ()), keys, tokens, warnings)


def _not_honoured(one: Mapping[str, str]) -> list[str]:
    found = [keyword for keyword in _NOT_HONOURED if keyword in one]
    found += [] if one.get("addressfamily", "any") == "any" else ["addressfamily"]
    return [f"{keyword} of the ssh config is not honoured" for keyword in found]
