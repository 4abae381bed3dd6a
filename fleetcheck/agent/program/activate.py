"""One environment, looked at in a job of its own: really activated, then asked by its own interpreter.

The shell that activates tells over fd 4 that it came so far, then becomes the interpreter, which tells the rest
over the same pipe. Nothing that an activation prints, reads or leaves behind can get in between.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Optional, Tuple

from fleetcheck.agent.program.hardware import which
from fleetcheck.agent.program.processes import Streams, call, exit_code, spawn
from fleetcheck.agent.program.values import (
    Root,
    dumps,
    one_line,
    open_file,
    problem,
    text_value,
    without_query,
    without_secrets,
)

ACTIVATE = r"""
fleetcheck_venv=$1 fleetcheck_python=$2 fleetcheck_kind=$3 fleetcheck_root=$4 fleetcheck_shown=$5
fleetcheck_start=$6 fleetcheck_rc=0 fleetcheck_login=${PYTHONPATH-}
case $fleetcheck_kind in
venv)
    { . "$fleetcheck_venv/bin/activate"; fleetcheck_rc=$?; } </dev/null >&5 2>&5 4>&- 5>&-
    ;;
conda)
    CONDA_PREFIX=$fleetcheck_venv CONDA_DEFAULT_ENV=$fleetcheck_venv CONDA_SHLVL=1 PATH=$fleetcheck_venv/bin:$PATH
    export CONDA_PREFIX CONDA_DEFAULT_ENV CONDA_SHLVL PATH
    {
        for fleetcheck_script in "$fleetcheck_venv"/etc/conda/activate.d/*.sh; do
            if [ -r "$fleetcheck_script" ]; then . "$fleetcheck_script" || fleetcheck_rc=$?; fi
        done
    } </dev/null >&5 2>&5 4>&- 5>&-
    ;;
plain)
    PATH=$fleetcheck_venv/bin:$PATH
    export PATH
    ;;
esac
set +eu
printf 'A%s\0%s\0%s\0' "$fleetcheck_rc" "$(command -v python3 2>/dev/null)" "$PATH" >&4
exec "$fleetcheck_python" "$fleetcheck_start" -B - "$fleetcheck_root" "$fleetcheck_shown" "$fleetcheck_login" 5>&-
"""
RESULT_LIMIT = 4 << 20
# Without site, which executes .pth files, no interpreter before 3.14 knows its venv: as site does, by pyvenv.cfg.
PREFIX = """import os, sys
folder = os.path.dirname(os.path.abspath(sys.executable or "/nonexistent/python"))
above = os.path.dirname(folder)
venv = any(os.path.isfile(place + "/pyvenv.cfg") for place in (folder, above))
os.write(1, os.fsencode(above if venv else sys.prefix))
"""


class Talk:
    """One shell that activates and becomes the interpreter, and what came over its pipes.

    The interpreter runs without ``site`` (``-S``), which would execute ``.pth`` files and ``sitecustomize``;
    ``normally`` with it, which is for a real import alone.
    """

    def __init__(
        self, root: Root, item: Dict[str, Any], kind: str, source: bytes, *, normally: bool = False
    ) -> None:
        self.fds: Dict[str, int] = {}
        theirs = {}
        for name, target in (("result", 4), ("noise", 5), ("stderr", 2)):
            self.fds[name], theirs[target] = os.pipe()
        theirs[0], feed = os.pipe()
        theirs[1] = theirs[2]
        place = root.at(item["path"])
        argv = ["/bin/sh", "-c", ACTIVATE, "sh", place, item["python"], kind, root.prefix, item["path"]]
        argv.append("-I" if normally else "-IS")
        pid = spawn(argv, theirs)
        for fd in set(theirs.values()):
            os.close(fd)
        self.streams = Streams(pid, 8192)
        self.streams.read_from(self.fds["result"], RESULT_LIMIT)
        self.streams.read_from(self.fds["noise"])
        self.streams.read_from(self.fds["stderr"])
        self.streams.write_to(feed, source)

    def result(self) -> bytes:
        """Return what came over fd 4 so far."""
        return bytes(self.streams.data[self.fds["result"]])

    def text(self, name: str) -> str:
        """Return what came over another pipe so far."""
        return self.streams.drain(self.fds[name]).decode("utf-8", "replace")

    def rc(self) -> "Optional[int]":
        """Return the exit status, None while it runs."""
        return None if self.streams.status is None else exit_code(self.streams.status)


def look(root: Root, item: Dict[str, Any], source: bytes, limits: "Tuple[float, float]") -> str:
    """Return the part ``venv/N`` as JSON. ``limits``: seconds for the activation, and for the interpreter."""
    value: Dict[str, Any] = {
        "index": item["index"], "path": root.show(root.at(item["path"])), "real": item["real"],
        "item": item["item"], "origin": item["origin"], "state": "ran", "error": item["error"], "rc": None,
        "stderr": "", "cfg": None, "activation": None,
    }  # fmt: skip
    if item["state"] != "present" or item["python"] is None:
        states = {"missing": "missing", "unreadable": "unreadable", "hung": "hung"}
        value["state"] = states.get(item["state"], "unreadable" if item["error"] == "EACCES" else "no-interpreter")
        if item["state"] == "present":
            value["cfg"] = text_value(root, item["path"] + "/pyvenv.cfg")
        return dumps(value)
    value["cfg"] = text_value(root, item["path"] + "/pyvenv.cfg")
    talk, activation = activate(root, item, source, limits[0])
    value["activation"] = activation
    lines = converse(talk, value, limits[1])
    head = dumps(value)
    if lines is None:
        return head
    # What the interpreter told is JSON already; the controller parses it, not this host.
    env, rest = lines
    activation_json = dumps(activation)
    merged = '%s, "env": %s}' % (activation_json[:-1], env)
    head = head.replace('"activation": ' + activation_json, '"activation": ' + merged, 1)
    return head[:-1] + ", " + rest[1:]


def activate(root: Root, item: Dict[str, Any], source: bytes, limit: float) -> "Tuple[Talk, Dict[str, Any]]":
    """Start the shell and wait for word that the activation is over; else start again without one."""
    kind, script = item["kind"], item["script"]
    value: Dict[str, Any] = {
        "kind": kind, "script": None if script is None else root.show(root.at(item["path"] + "/" + script)),
        "status": "ok", "rc": None, "stderr": "", "python3": no_python3("not asked"),
    }  # fmt: skip
    if script is not None:
        try:
            os.close(open_file(root.at(item["path"] + "/" + script)))
        except OSError as error:
            value["status"], value["stderr"] = "failed", script + ": " + problem(error)
            return quiet(root, item, source, limit), value
    talk = Talk(root, item, kind, source)
    ended = talk.streams.run(time.monotonic() + limit, lambda: talk.result().count(b"\0") >= 3)
    value["stderr"] = without_query(without_secrets(talk.text("noise")))
    if ended == "enough":
        rc, python3, path = talk.result().split(b"\0", 3)[:3]
        value["rc"] = int(rc[1:] or 0)
        value["status"] = "ok" if value["rc"] == 0 else "failed"
        value["python3"] = ask_python3(root, item, os.fsdecode(python3), os.fsdecode(path), limit)
        return talk, value
    value["status"] = "hung" if ended == "limit" else "exited"
    value["rc"] = talk.rc()
    value["python3"] = no_python3("the activation " + value["status"])
    value["stderr"] = (value["stderr"] + without_query(without_secrets(talk.text("stderr"))))[:8192]
    talk.streams.close()
    return quiet(root, item, source, limit), value


def quiet(root: Root, item: Dict[str, Any], source: bytes, limit: float) -> Talk:
    """Start the interpreter without any activation."""
    talk = Talk(root, item, "none", source)
    talk.streams.run(time.monotonic() + limit, lambda: talk.result().count(b"\0") >= 3)
    return talk


def converse(talk: Talk, value: Dict[str, Any], limit: float) -> "Optional[Tuple[str, str]]":
    """Wait for the interpreter's two lines; set ``state``, ``rc`` and ``stderr`` where they do not come."""
    ended = talk.streams.run(time.monotonic() + limit, lambda: talk.result().count(b"\n") >= 2)
    if ended == "enough":  # it is about to exit: waiting for that makes its CPU time count
        talk.streams.run(min(time.monotonic() + 0.3, time.monotonic() + limit), lambda: False)
    told = talk.result().split(b"\0", 3)[-1].decode("ascii", "replace")
    value["stderr"] = without_query(without_secrets(talk.text("stderr")))
    value["rc"] = talk.rc()
    talk.streams.close()
    lines = told.split("\n")
    if lines[0].startswith('{"too_old"'):
        value["state"] = "too-old"
        value["error"] = one_line(lines[0].partition(":")[2].strip(' "}'))
        return None
    if len(lines) >= 3 and lines[1].startswith('{"broken"'):
        value["state"], value["rc"] = "broken", None
        value["error"] = one_line(lines[1].partition(":")[2].strip(' "}'))
        return None
    if len(lines) >= 3 and all(line.startswith("{") and line.endswith("}") for line in lines[:2]):
        value["rc"] = None
        return lines[0], lines[1]
    value["state"] = "hung" if ended == "limit" else "broken"
    value["error"] = one_line(value["stderr"].strip().rpartition("\n")[2]) or "it said nothing"
    return None


def no_python3(error: "Optional[str]") -> Dict[str, Any]:
    """Return the value of a ``python3`` of which nothing is known."""
    return {"path": None, "real": None, "prefix": None, "same": None, "error": error}


def ask_python3(root: Root, item: Dict[str, Any], found: str, path: str, limit: float) -> Dict[str, Any]:
    """Tell whose ``python3`` the activated shell would run: whether its ``sys.prefix`` is this environment."""
    value = no_python3(None)
    if root.prefix:
        found = which(root, "python3", path) or found
    if not found.startswith("/"):
        value["error"] = "python3 is not in PATH" if not found else "not an absolute path: " + one_line(found)
        return value
    place = root.at(item["path"])
    value["path"], value["real"] = root.show(found), root.show(os.path.realpath(found))
    prefix = prefix_of(found)
    if prefix is None:
        if os.path.dirname(found) in (os.environ.get("HOME"), os.getcwd()):
            value["error"] = "it lies in the login folder and is not executed"
            return value
        answer = call([found, "-I", "-S", "-B", "-c", PREFIX], limit)
        prefix = answer["stdout"] if answer["rc"] == 0 and answer["stdout"].startswith("/") else None
        if prefix is None:
            value["error"] = "timeout" if answer["timed_out"] else answer["error"] or one_line(answer["stderr"])
            return value
    value["prefix"] = root.show(prefix)
    try:
        value["same"] = os.path.samefile(prefix, place)
    except OSError as error:
        value["error"] = problem(error)
    return value


def prefix_of(python: str) -> "Optional[str]":
    """Return the prefix of a venv's or conda's interpreter as getpath finds it; None: it has to be asked."""
    folder = os.path.dirname(python)
    for place in (folder, os.path.dirname(folder)):
        if os.path.isfile(place + "/pyvenv.cfg"):
            return os.path.dirname(folder)
    return os.path.dirname(folder) if os.path.isdir(os.path.dirname(folder) + "/conda-meta") else None
