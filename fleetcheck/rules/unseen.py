"""The rule on what serves where the audit may not look, and the words for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from posixpath import basename, dirname, normpath

from fleetcheck.facts.records import GpuProcess, HostFacts, Process
from fleetcheck.rules import text
from fleetcheck.rules.rule import Hit, Look, rule
from fleetcheck.rules.serving import environment_of, pids
from fleetcheck.rules.unreadable import DENIED, reader

ENVIRON = "https://man7.org/linux/man-pages/man5/proc_pid_environ.5.html"
HIDEPID = "https://man7.org/linux/man-pages/man5/proc.5.html"
PROGRAMS = ("python", "sglang", "vllm", "VLLM", "pt_main", "ray::")
"""How the names of Python's programs begin, as nvidia-smi tells them."""
MOST_NAMED = 20
"""As many processes that could not be read are named one by one."""
ONE_BY_ONE = re.compile(r"process \d+ of |\d+ more$|the processes of other users: ")
"""Lines on processes of which each says nothing of whether it serves."""
NO_CAPABILITY = (
    "This login is root and lacks CAP_SYS_PTRACE, as in a container: audit the machine outside of it, or give the "
    "container that capability."
)
UNKNOWN = "so nothing is known of the FlashInfer that {} use{}"


@dataclass(frozen=True, slots=True)
class Stranger:
    """A process that serves, or computes on a GPU, and that no environment which was examined is known of.

    ``what`` is the server or program, ``venv`` the environment that its command line names, ``container`` the
    kind of the one that it runs in. ``denied`` is what could not be read, ``why`` the errno names.
    """

    process: Process
    what: str
    serves: bool
    venv: str | None
    container: str | None
    denied: tuple[str, ...]
    why: tuple[str, ...]

    @property
    def alike(self) -> tuple[object, ...]:
        """What those have in common of which one finding is made."""
        where = self.container or self.venv
        return self.process.user, self.what, self.serves, where, self.denied, self.why


def wanted(look: Look) -> bool:
    """Return whether the inventory asks for the environments of what serves."""
    return "running" in look.target.venvs


def strangers(look: Look) -> list[Stranger]:
    """Return what serves, or computes on a GPU, and could not be attributed, since it may not be read."""
    facts = look.facts
    found = []
    for process in facts.processes or ():
        lines = [line.rpartition(": ") for line in process.unseen]
        denied = {what: why for what, _, why in lines if why in DENIED}
        inside = container(look, process)
        if not denied or not (process.server or process.uses_gpu):
            continue
        if inside is None and environment_of(look, process) is not None:
            continue
        venv = None if inside else process.venv
        why = tuple(dict.fromkeys(denied.values()))
        what = process.server or process.title or "Python"
        found.append(Stranger(process, what, bool(process.server), venv, inside, tuple(denied), why))
    known = {process.pid for process in facts.processes or ()}
    listed = {one.pid: one for one in reversed(facts.gpus.processes) if one.pid not in known}
    return found + [one for app in reversed(listed.values()) if (one := on_gpu(look, app)) is not None]


def container(look: Look, process: Process) -> str | None:
    """Return the container of a process that may not be looked into; its paths are not the host's.

    Where the host itself is one, that is the same for all of its processes.
    """
    if process.place != "unknown" or look.facts.gpus.surroundings not in (None, "wsl"):
        return None
    return None if process.container == "machine" else process.container


def on_gpu(look: Look, app: GpuProcess) -> Stranger | None:
    """Return a process that nvidia-smi lists and that could not be read; None where it is no Python, or is known.

    One that is not there at all ended meanwhile, unless something keeps it from being seen.
    """
    name = basename(app.name or "")
    if app.name and not name.startswith(PROGRAMS):
        return None
    prefix = dirname(dirname(app.name or "")) if basename(dirname(app.name or "")) == "bin" else None
    if prefix and any(normpath(prefix) in {venv.path, venv.real, venv.prefix} for venv in look.facts.venvs):
        return None
    facts = look.facts
    own = next((one for one in facts.unread if one.pid == app.pid), None)
    denied: tuple[str, ...] = ()
    if own is not None:
        why, denied = own.error or "no reason given", ("mapped files",)
    elif facts.processes_hidden:
        why = facts.processes_hidden
    elif len(facts.unread) >= MOST_NAMED:
        why, denied = "EACCES", ("mapped files",)
    elif facts.gpus.surroundings not in (None, "wsl") and not any(one.server for one in facts.processes or ()):
        why = "not in this container"
    else:
        return None
    process = Process(pid=app.pid, user=own.user if own is not None else None, uses_gpu=True)
    return Stranger(process, text.brief(name, "Python"), False, prefix or None, None, denied, (why,))


def who(group: Sequence[Stranger]) -> str:
    """Return ``Process 4711 (root, sglang)``."""
    first = group[0]
    told = [text.brief(first.process.user)] if first.process.user else []
    return f"{pids(one.process for one in group)} ({', '.join([*told, text.brief(first.what)])})"


def does(group: Sequence[Stranger]) -> str:
    """Return ``serves from /root/ml-env``, of one process or of several."""
    first, one = group[0], len(group) == 1
    verb = ("serve" if first.serves else "compute") + ("s" if one else "") + ("" if first.serves else " on a GPU")
    if first.container:
        return f"{verb} in a container ({text.brief(first.container)}), which was not examined"
    if first.venv:
        return f"{verb} from {text.brief(first.venv)}, which was not examined"
    return f"{verb} from an environment that is not known"


def reason(look: Look, group: Sequence[Stranger]) -> str:
    """Return ``the user audit may not read its environment (EACCES)``."""
    first = group[0]
    its, codes = "its" if len(group) == 1 else "their", ", ".join(map(text.brief, first.why))
    if not first.denied:
        return f"{reader(look)} may not see {'it' if len(group) == 1 else 'them'} ({codes})"
    things = " and ".join(filter(None, (", ".join(first.denied[:-1]), first.denied[-1])))
    verb = "may" if set(first.why) <= set(DENIED) else "could"
    return f"{reader(look)} {verb} not read {its} {things} ({codes})"


def groups(look: Look) -> list[list[Stranger]]:
    """Return the strangers, those together of which the same is to be said."""
    found: dict[tuple[object, ...], list[Stranger]] = {}
    for one in strangers(look):
        found.setdefault(one.alike, []).append(one)
    return list(found.values())


def steps(look: Look, user: str | None = None, *, inside: bool = False) -> tuple[str, ...]:
    """Return how the audit gets the rights to look; ``user`` is who serves."""
    system = look.facts.system
    if system is not None and system.user == "root":
        return (NO_CAPABILITY,)
    alone = user and not inside and look.target.connection == "ssh"
    return (
        "sudo -n true  # on the host, as the audit's user: sudo must ask for no password",
        "Then give this host, or its group, the line sudo: true in the inventory.",
        *((f"Or log in as the user who serves: give it the line user: {text.brief(user)}.",) if alone else ()),
    )


def lost(facts: HostFacts) -> tuple[str, ...]:
    """Return why what serves was not looked at, or not all of it, beside what single processes deny."""
    return tuple(line for line in facts.processes_unread if not ONE_BY_ONE.match(line))


@rule(
    "serving-unseen",
    "venv",
    "warning",
    summary="What serves on the host could not be looked at, so its environment is not known.",
    explanation=(
        "The inventory asks for `running`: the environments of what serves. A process of another user tells its "
        "command line to everyone, and its environment, its mapped files and its container to itself and root "
        "alone; under `hidepid` it is not to be seen at all. Where its command line names an environment that "
        "was examined, that is enough. Else nothing is said of the FlashInfer that production uses, and that "
        "must not read as a pass: it is an error where a server is known by its command line, and a warning "
        "where one may be there. Processes that neither serve nor compute on a GPU are passed by."
    ),
    remedy=(
        "Let the audit use sudo (`sudo: true` in the inventory), or log in as root or as the user who serves "
        "(`user:`)."
    ),
    references=(ENVIRON, HIDEPID, "docs/inventory.md"),
)
def serving_unseen(look: Look) -> Iterator[Hit]:
    """Fire for servers that may not be read and are not attributed, and where processes were not looked at."""
    if not wanted(look):
        return
    told = groups(look)
    for group in told:
        first, one = group[0], len(group) == 1
        numbers = ",".join(str(stranger.process.pid) for stranger in group[:8])
        after = UNKNOWN.format(*(("it", "s") if one else ("they", "")))
        rights = steps(look, first.process.user, inside=bool(first.container))
        yield Hit(
            f"{who(group)} {does(group)}; {reason(look, group)}, {after}.",
            severity="error" if first.serves else None,
            venv=first.venv,
            key="denied",
            seen=[f"{what}: {' '.join(first.why)}" for what in first.denied] or list(first.why),
            remedy=(f"sudo ps -o pid,user,stat,args -p {numbers}", *(rights if mendable(first) else again(first))),
        )
    yield from _unlisted(look, bool(told))


def mendable(one: Stranger) -> bool:
    """Return whether more rights would help."""
    return set(one.why) <= {*DENIED, "ENOENT"}


def again(one: Stranger) -> tuple[str, ...]:
    """Return what to do where rights are not what lacks."""
    if "not in this container" in one.why:
        return ("Audit the machine itself, outside of this container.",)
    return ("Mend what keeps it from being read, then run the audit of this host again.",)


def _unlisted(look: Look, told: bool) -> Iterator[Hit]:
    """Yield what is to be said of the list of processes itself."""
    facts = look.facts
    known = any(one.server and environment_of(look, one) is not None for one in facts.processes or ())
    if facts.processes_hidden and not told and not known:
        yield Hit(
            f"The processes of other users are hidden from {reader(look)} ({text.brief(facts.processes_hidden)}), "
            "so whether something serves, and from which environment, is not known.",
            key="hidden",
            seen=[facts.processes_hidden],
            remedy=("grep ' /proc proc ' /proc/mounts  # hidepid, and the gid that sees more", *steps(look)),
        )
    why = lost(facts)
    if why:
        message = (
            f"What serves on this host was not looked at ({text.listing(why)}), so whether something serves, and "
            "from which environment, is not known."
            if facts.processes is None
            else f"Not all that serves on this host was looked at ({text.listing(why)}), so more may serve than "
            "is known."
        )
        yield Hit(
            message,
            key="unanswered",
            seen=list(why),
            remedy=(
                ("Install Python 3.8 or newer on the host, or list its environments under venvs by their paths.",)
                if any(line.startswith("no Python") for line in why)
                else ("Run the audit of this host again, with a longer limit if it ran out of time.",)
            ),
        )


RULES = (serving_unseen,)
