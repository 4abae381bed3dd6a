"""The steps of a remedy for a page that can set a command apart from a sentence, and copy it.

A step of a finding is one text. How rules write it is its grammar, held by a test over every rule's example:

- a sentence begins with a capital letter and ends in ``.``, ``:`` or ``)``;
- anything else is a command, which begins with none: ``cp -p a b  # keeps the edit``, two spaces before the note;
- a sentence's beginning, a colon and a space may stand before a command: ``Or: pip uninstall x``. A line for
  the inventory may stand there too, and is copied like one.

What a text of another make is taken for decides how it looks, never what it does: it is shown whole.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple


class Step(NamedTuple):
    """What is said before the commands, the commands, what is said after them, and what they interrupt.

    A sentence has no commands. ``mark`` is "" where nothing that runs is touched.
    """

    lead: str
    commands: tuple[str, ...]
    note: str
    mark: str


_NOTE = re.compile("  # ")
_SENTENCE = re.compile(r"[A-Z](?![A-Z0-9_]*=)")
_ENDS = (".", ":", ")", "…")
_LEAD = re.compile(r"([A-Z][^:]*:) (?=[a-z/~'.])")
# One command of a line: quotes and escapes are whole, so that a semicolon in them parts nothing.
_ONE = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^;'"\\])+""")
_WHOLE = re.compile(r"""(?:'[^']*'|"(?:\\.|[^"\\])*"|\\.|[^'"\\])*""")
_COMMAND_MARKS = (
    (re.compile(r"\b(reboot|poweroff|shutdown)\b"), "reboots the host"),
    (re.compile(r"--gpu-reset\b"), "stops what runs on the GPU"),
    (re.compile(r"\bnvidia-smi\b.* -mig [01]\b"), "ends MIG slices"),
    (re.compile(r"\bsystemctl (restart|stop) |\b(p?kill|modprobe -r|rmmod) "), "restarts serving"),
)
_SENTENCE_MARKS = (
    (re.compile(r"powered off"), "host powered off"),
    (re.compile(r"\bdraining\b|\breboot\b"), "drain the host first"),
    (re.compile(r"^Restart\b|\bthen restart\b|\(restarts serving\)"), "restarts serving"),
)
_SAID = re.compile(r" \(restarts serving\)$")
_KEYS = re.compile(r"(.*?: )?((?:ssh-keygen|ssh-keyscan|ssh \S+ '?ssh-keyscan) .*)")


@lru_cache(maxsize=4096)
def step(text: str) -> Step:
    """Return the parts of one step, a clean text."""
    body, note = _noted(text)
    if _SENTENCE.match(body):
        lead = _LEAD.match(body)
        if body.endswith(_ENDS) or lead is None:
            return Step(_SAID.sub("", text), (), "", _marked(_SENTENCE_MARKS, text))
        said, body = lead[1], body[lead.end() :]
    else:
        said = ""
    return Step(said, _commands(body), note, _marked(_COMMAND_MARKS, body))


def steps(texts: Sequence[str]) -> list[Step]:
    """Return the parts of each step."""
    return [step(text) for text in texts]


def doctor(host: str, inventory: str) -> str:
    """Return the command that looks at one host step by step. Joined runs have no one inventory to name."""
    named = inventory if inventory and ", " not in inventory and not inventory.startswith("-") else "INVENTORY"
    return shlex.join(["fleetcheck", "doctor", host, "-i", named])


def key_command(message: str) -> tuple[str, str]:
    """Return our own message on a host key, and the command it ends with, "" where there is none."""
    found = _KEYS.fullmatch(message)
    return ((found[1] or "").strip(), found[2]) if found else (message, "")


def _noted(text: str) -> tuple[str, str]:
    """Return a command and its note. Where a quote is open, a path says so, and no note begins."""
    for found in _NOTE.finditer(text):
        if _WHOLE.fullmatch(text, 0, found.start()):
            return text[: found.start()], text[found.end() :]
    return text, ""


def _commands(body: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in _ONE.findall(body) if part.strip())
    # A quote that never ends: whatever this is, it is not taken apart.
    return parts if parts and "; ".join(parts) == body else (body,)


def _marked(marks: Sequence[tuple[re.Pattern[str], str]], text: str) -> str:
    return next((said for pattern, said in marks if pattern.search(text)), "")
