"""What the rules on a patched all-reduce share: words, who is affected now, and the steps that take it back."""

from __future__ import annotations

from collections.abc import Sequence

from fleetcheck.facts import gpus
from fleetcheck.facts.in_force import of_server, serves_from
from fleetcheck.facts.records import Process, Venv
from fleetcheck.facts.wrapper import MODULE, SOURCE
from fleetcheck.rules import text
from fleetcheck.rules.caches import aside
from fleetcheck.rules.rule import Look
from fleetcheck.rules.serving import changed
from fleetcheck.rules.versions import below

FIXED = "0.6.17"
"""The first release whose gate admits major 12 and whose header has no guard against it (flashinfer#3903)."""
USES = {
    "off": "serves from this environment, and by its gates and arguments does not call the fused kernels",
    "on-unvalidated": "serves from this environment, and calls the fused kernels",
}
NOT_KNOWN = "serves from this environment; whether it calls the fused kernels is not known"
OLDER = "serves from this environment, from before its files changed; what it calls is not known"


def version(venv: Venv) -> str | None:
    """Return the version of FlashInfer in this environment, None where it is not known."""
    return venv.flashinfer.version if venv.flashinfer is not None else None


def package_path(venv: Venv, name: str) -> str:
    """Return the path of a file of FlashInfer."""
    root = venv.flashinfer.root if venv.flashinfer is not None else None
    return f"{root}/{name}" if root else name


def gate_path(venv: Venv) -> str | None:
    """Return the path of the file that holds the gate, None where it is not known."""
    gate = venv.fusion.gate_file if venv.fusion is not None else None
    return gate if gate is None or gate.startswith("/") else package_path(venv, gate)


def capabilities(look: Look) -> tuple[tuple[str, ...], str | None]:
    """Return the compute capabilities by which the fusion is judged, and what tells them if not the GPUs."""
    seen = look.facts.gpus
    if seen.compute_capability:
        return seen.compute_capability, None
    if guessed := gpus.capabilities(seen.devices):
        return guessed, "as their PCI ids say"
    expected = look.target.expect.compute_capability
    return ((expected,), "as is expected") if expected is not None else ((), None)


def capability(look: Look, major: str = "") -> str:
    """Return this host's compute capabilities in words, those of one major where it is given (``12.``).

    Where the GPUs did not tell them, the words make it a condition.
    """
    known, told_by = capabilities(look)
    seen = ", ".join(text.brief(one) for one in known if one.startswith(major))
    if not seen:
        return "this host's GPUs"
    return f"compute capability {seen}" if told_by is None else f"this host, if these GPUs are {seen} {told_by}"


def in_use(look: Look, venv: Venv) -> str:
    """Return one sentence: which server uses this environment now, and whether it calls the fused kernels.

    sglang and vLLM call no other kernels of this module. Only what the facts say is claimed.
    """
    processes = look.facts.processes
    if processes is None:
        return "It was not examined what serves."
    servers = [process for process in processes if process.server]
    own = [process for process in servers if serves_from(process, venv)]
    if own:
        names = dict.fromkeys(process.server for process in own if process.server)
        return f"{'; '.join(_use(look, venv, name, own) for name in names)}."
    unplaced = [process for process in servers if process.venv is None]
    if unplaced:
        verb = "serves" if len(_mains(unplaced)) == 1 else "serve"
        return f"{_named(unplaced)} {verb}; from which environment is not known."
    partly = look.facts.processes_unread or look.facts.processes_hidden
    unread = ", and not every process could be looked at" if partly else ""
    if not servers:
        return f"No serving process was seen{unread}."
    verb = "serves" if len(_mains(servers)) == 1 else "serve"
    others = text.listing(list(dict.fromkeys(process.venv for process in servers if process.venv)))
    return f"Nothing that was seen serves from this environment: {_named(servers)} {verb} from {others}{unread}."


def _use(look: Look, venv: Venv, server: str, own: Sequence[Process]) -> str:
    those = [process for process in own if process.server == server]
    callers = venv.fusion.callers if venv.fusion is not None else ()
    known = next((one.version for one in callers if one.name == server), None) or venv.packages.get(server)
    if any(changed(file, process) for process in those for file in process.files):
        use = OLDER
    else:
        use = USES.get(of_server(venv, server, those, capabilities(look)[0]), NOT_KNOWN)
    return f"{_named(those, known)} {use}"


def _named(processes: Sequence[Process], release: str | None = None) -> str:
    """Return ``sglang 0.5.20 (process 4711)``, with the processes that were started first."""
    names = " and ".join(dict.fromkeys(process.server for process in processes if process.server))
    mains = _mains(processes)
    number = "process" if len(mains) == 1 else "processes"
    shown = f" {text.brief(release)}" if release else ""
    return f"{names}{shown} ({number} {text.listing([str(one) for one in mains])})"


def _mains(processes: Sequence[Process]) -> list[int]:
    return sorted({process.launcher or process.pid for process in processes})


def back_to_release(look: Look, venv: Venv) -> tuple[str, ...]:
    """Return the steps that put the release's files back, or else those to a release that supports the GPUs."""
    found = venv.flashinfer
    path = gate_path(venv)
    first = (
        *((f"grep -n -A 20 'def gen_trtllm_comm_module' {text.quote(path)}",) if path else ()),
        *text.keep_package(found.root if found is not None else None),
    )
    back = (
        text.reinstall(venv, found),
        *(aside(look, venv, found, ".unsafe", MODULE) if found is not None else (text.BUILT,)),
        text.RESTART,
    )
    if version(venv) is not None and not below(version(venv), FIXED):
        return (*first, *back)
    pip = f"{text.python(venv)} -m pip"
    beside = " or ".join(venv.fusion.frameworks) if venv.fusion is not None else ""
    pinned = f"; name the release of {beside} that pins it beside it" if beside else ""
    return (
        *first,
        "Either put the release's files back; the fusion is then refused, which is correct:",
        *back,
        f"Or, instead, move to {FIXED} or newer{pinned}:",
        text.freeze(venv),
        f"{pip} install --dry-run flashinfer-python=={FIXED}  # shows what it changes",
        f"{pip} install flashinfer-python=={FIXED}{text.LIVE}",
        text.RESTART,
    )


def check_stride(venv: Venv) -> str:
    """Return the command that shows the pointer stride of the plain all-reduce."""
    path = text.quote(package_path(venv, SOURCE))
    return f"grep -n 'lamport_peer_comm_buffer_ptrs.i +' {path}  # MAX_RANKS_PER_NODE is right, tp_size is wrong"
