"""Rules on the environments of a host."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from fleetcheck.rules import text, unseen
from fleetcheck.rules.rule import Hit, Look, rule

VENV = "https://docs.python.org/3/library/venv.html"
PEP_405 = "https://peps.python.org/pep-0405/"
VENV_KEYS = (
    "venvs", "csrc_dir", "flashinfer", "sglang", "vllm", "torch_cuda", "nvcc", "venv_python", "allreduce_fusion",
    "files",
)  # fmt: skip
"""Expectations that nothing can be said of where the environment cannot be looked into."""
UNSEEN = tuple(f"expectation-{state}/{key}" for state in ("unchecked", "unmet") for key in VENV_KEYS)


@rule(
    "venv-missing",
    "venv",
    "error",
    summary="An environment that the inventory names is not on the host.",
    explanation=(
        "The path does not exist, or a glob of the inventory matches nothing. A path that may not be read "
        "is `venv-unreadable`, never missing."
    ),
    remedy="Correct the path in the inventory, or create the environment on the host.",
    references=(VENV,),
    causes=UNSEEN,
)
def venv_missing(look: Look) -> Iterator[Hit]:
    """Fire for each environment that is known to be absent, and for each glob without a match."""
    for venv in look.facts.venvs:
        if venv.state == "missing":
            yield Hit(
                (
                    f"The environment {text.brief(venv.path)} does not exist, so nothing is known of FlashInfer "
                    "in it."
                ),
                venv=venv.path,
                expected=venv.path,
                remedy=(
                    f"ls -l {text.quote(posixpath.dirname(venv.path.rstrip('/')) or '/')}",
                    "Correct the path under venvs in the inventory, or create the environment.",
                ),
            )
    for item in look.facts.unmatched:
        yield Hit(
            f"No environment on this host matches {text.brief(item)}, so nothing is known of FlashInfer in it.",
            venv=item,
            expected=item,
            remedy=("Correct the pattern under venvs in the inventory, or create the environment.",),
        )


@rule(
    "venv-unreadable",
    "venv",
    "error",
    summary="An environment could not be looked into.",
    explanation=(
        "Mostly the user that the audit logs in as lacks the permission to enter the folder or to run its "
        "interpreter; else no answer came back from it before the look at the host ended. Nothing is said "
        "of what is in it, and it is never called missing."
    ),
    remedy=(
        "Give that user the right to read the folder, or let the audit use sudo (`sudo: true` in the "
        "inventory). Where no answer came back, run the audit of that host again."
    ),
    references=("https://man7.org/linux/man-pages/man7/path_resolution.7.html",),
    causes=(*UNSEEN, "activate-mismatch"),
)
def venv_unreadable(look: Look) -> Iterator[Hit]:
    """Fire for each environment that is closed to the audit."""
    user = look.facts.system.user if look.facts.system is not None else None
    who = f"The user {text.brief(user)}" if user else "The audit's user"
    for venv in look.facts.venvs:
        if venv.state == "unreadable":
            yield Hit(
                f"{who} could not look into the environment {text.brief(venv.path)}: {text.brief(venv.error)}.",
                venv=venv.path,
                seen=venv.error,
                remedy=(
                    f"namei -l {text.python(venv)}",
                    "Give this user the right to read it, or set sudo: true for this host in the inventory.",
                    "If no permission is lacking, run the audit of this host again.",
                ),
            )


@rule(
    "venv-broken",
    "venv",
    "error",
    summary="The interpreter of an environment is absent, fails, hangs, or is too old.",
    explanation=(
        "An environment holds a link to the Python that it was made from. After an upgrade of the system "
        "that Python may be gone, and the link leads nowhere. A process that runs already goes on, and "
        "fails at its next start."
    ),
    remedy="Install the Python that it was made from again, or make the environment anew with one that is there.",
    references=(PEP_405, VENV),
    causes=(*UNSEEN, "activate-mismatch"),
)
def venv_broken(look: Look) -> Iterator[Hit]:
    """Fire for each environment whose interpreter did not answer."""
    for venv in look.facts.venvs:
        if venv.state == "broken":
            yield Hit(
                f"The interpreter of {text.brief(venv.path)} does not work: {text.brief(venv.error)}.",
                venv=venv.path,
                seen=venv.error,
                remedy=(
                    f"readlink -f {text.python(venv)}; {text.python(venv)} -V",
                    f"cat {text.quote(posixpath.join(venv.path, 'pyvenv.cfg'))}  # the Python it was made from",
                    (
                        "Install that Python again; or make the environment anew beside the old one, with its "
                        "packages."
                    ),
                ),
            )


@rule(
    "venv-none",
    "venv",
    "error",
    summary="No environment was looked at on this host.",
    explanation=(
        "None was found in the places that the inventory asks for: no process is known to serve from one that "
        "could be looked into (`running`), and none lies in the common places (`usual`). Nothing was said "
        "of FlashInfer on this host, so it must not read as a pass. What serves and may not be looked at is "
        "named. It is a warning where the inventory asks for no environment (`venvs: []`)."
    ),
    remedy=(
        "List the environment under `venvs` in the inventory, as a path or a glob; where something serves that "
        "may not be looked at, let the audit use sudo (`sudo: true`)."
    ),
    references=(VENV,),
    causes=(*UNSEEN, "serving-unseen"),
)
def venv_none(look: Look) -> Iterator[Hit]:
    """Fire where the list of environments came back and is empty."""
    if not look.facts.venvs_known or look.facts.venvs or look.facts.unmatched:
        return
    if not look.target.venvs:
        yield Hit(
            "The inventory asks for no environment on this host, so nothing is known of FlashInfer there.",
            severity="warning",
            remedy=("List an environment, running or usual under venvs in the inventory.",),
        )
        return
    places = []
    if unseen.wanted(look):
        places.append(_serving(look))
    if "usual" in look.target.venvs:
        unasked = look.facts.processes is None and unseen.lost(look.facts)
        places.append("the usual places were not looked at" if unasked else "none in the usual places")
    rights: list[str] = []
    for group in unseen.groups(look) if unseen.wanted(look) else ():
        first = group[0]
        if first.venv:
            rights.append(f"namei -l {text.quote(first.venv)}")
        if unseen.mendable(first):
            rights += unseen.steps(look, first.process.user, inside=bool(first.container))
    search = "find / -xdev -name pyvenv.cfg -not -path '/proc/*' 2>/dev/null"
    yield Hit(
        f"No Python environment was looked into on this host: {'; '.join(places) or 'none was listed'}.",
        remedy=(
            *(dict.fromkeys(rights) if rights else (search,)),
            f"{'Or list' if rights else 'List'} the environment under venvs in the inventory.",
        ),
    )


def _serving(look: Look) -> str:
    """Return in words why nothing that serves led to an environment."""
    facts = look.facts
    told = [
        f"p{unseen.who(group)[1:]} {unseen.does(group)}, since {unseen.reason(look, group)}"
        for group in unseen.groups(look)
    ]
    known = {one.process.pid for one in unseen.strangers(look)}
    for process in facts.processes or ():
        if process.server and process.pid not in known:
            place = f"from {text.brief(process.venv)}" if process.venv else "from no environment that is known"
            told.append(
                f"process {process.pid} ({process.server}) serves {place}, where no FlashInfer, sglang or vLLM "
                "was found"
            )
    if told:
        return "; ".join([*told[:3], *([f"{len(told) - 3} more serve"] if len(told) > 3 else [])])
    why = unseen.lost(facts)
    if why:
        return f"what serves was not looked at ({text.listing(why)})"
    if facts.processes_hidden:
        return f"the processes of other users are hidden ({text.brief(facts.processes_hidden)})"
    if facts.processes_unread:
        return "no process that may be read serves"
    return "none serving"


@rule(
    "activate-mismatch",
    "venv",
    "error",
    summary="After activation, `python3` is not the interpreter of the environment.",
    explanation=(
        "The environment was activated, and `python3` was asked for its `sys.prefix`. Where that is "
        "another folder, each command typed after activation speaks of another environment: the script "
        "names a path from before the folder was moved or copied, or something puts another Python first. "
        "It is a warning where the activation failed and could not be asked."
    ),
    remedy=("Make the environment again at the place where it is, or correct what changes PATH after activation."),
    references=(VENV, PEP_405),
)
def activate_mismatch(look: Look) -> Iterator[Hit]:
    """Fire where activation is known to lead elsewhere, or is known to fail."""
    for venv in look.facts.venvs:
        script = text.quote(f"{venv.path.rstrip('/')}/bin/activate")
        steps = (
            f"grep -n VIRTUAL_ENV= {script}",
            f"sh -c '. \"$1\"; command -v python3' sh {script}",
            "Make the environment again at this place; moving or copying one leaves the old path in its scripts.",
        )
        if venv.activation_matches is False:
            leads = text.brief(venv.activated_prefix or venv.activated_python, "another environment")
            yield Hit(
                f"After activating {text.brief(venv.path)}, python3 belongs to {leads}.",
                venv=venv.path,
                expected=venv.prefix or venv.path,
                seen=venv.activated_prefix or venv.activated_python,
                remedy=steps,
            )
        elif venv.activation_matches is None and venv.activation_error and venv.state != "missing":
            yield Hit(
                f"What python3 means after activating {text.brief(venv.path)} could not be asked: "
                f"{text.brief(venv.activation_error)}.",
                venv=venv.path,
                severity="warning",
                seen=venv.activation_error,
                remedy=steps[:2],
            )


RULES = (venv_missing, venv_unreadable, venv_broken, venv_none, activate_mismatch)
