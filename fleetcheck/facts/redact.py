"""Take secrets out of what a host printed, before it is shown or kept.

A shell that traces (``set -x``), a traceback or an address of a repository may hold one. Names are kept, so that a
reader sees what was there; values are not.
"""

from __future__ import annotations

import re

HIDDEN = "***"
_WORDS = r"(?:token(?!iz)|key|secret|password|passwd|credential)"
_VALUE = r"""(?:"[^"\n]*"?|'[^'\n]*'?|[^\s;,&"']+)"""
# NAME=value, and "name": "value" of JSON. A colon alone is no sign: Python says KeyError: 'x'.
# Every repetition is bounded: the text is a stranger's.
_ASSIGNED = re.compile(rf"(?i)({_WORDS}[\w.-]{{0,64}}[\"']?\s{{0,8}}=\s{{0,8}}){_VALUE}")
_OPTION = re.compile(rf"(?i)((?<![\w-])--?[\w-]{{0,64}}?{_WORDS}[\w-]{{0,64}}\s{{1,8}})(?!-){_VALUE}")
_JSON = re.compile(rf"(?i)({_WORDS}[\w.-]{{0,64}}[\"']\s{{0,8}}:\s{{0,8}}){_VALUE}")
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{6,}")
# All up to the last @ before the path: a password may hold one.
_USER = re.compile(r"(://)[^\s/\"']*@")
# The forms in which services issue tokens: GitHub, GitLab, Hugging Face, OpenAI, Slack, AWS.
_ISSUED = re.compile(
    r"\b(?:gh[opsur]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA)(?=[\w-]*[0-9A-Z])[\w-]{10,}", re.ASCII
)


# One of these is in whatever the patterns below would find; most texts hold none, and are asked once.
_SUSPECT = re.compile(
    r"://|token|key|secret|passw|credential|bearer|basic|gh[opsur]_|github_pat_|glpat-|hf_|sk-|xox|akia",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """Return a text without what looks like a secret; ``***`` stands in its place."""
    return hidden(text) if _SUSPECT.search(text) else text


def hidden(text: str) -> str:
    """Return what :func:`redacted` does, without a first look whether there is anything to hide."""
    text = _USER.sub(r"\1", text)
    for pattern in (_ASSIGNED, _OPTION, _JSON):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    text = _BEARER.sub(rf"\1\2{HIDDEN}", text)
    return _ISSUED.sub(HIDDEN, text)
