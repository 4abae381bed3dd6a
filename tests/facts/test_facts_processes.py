"""Which environment a process runs from, where its mapped files name more than one."""

from __future__ import annotations

import pytest

from fleetcheck.facts.host import host_facts
from fleetcheck.facts.processes import hidden, processes, unread, unread_processes

STOCK, TORCH = "/srv/stock", "/opt/torch"
PACKAGES = "lib/python3.12/site-packages"


def part(mapped: list[str], flashinfer: str | None, named: str | None) -> dict[str, object]:
    item = {
        "pid": 7, "mapped": [{"path": f"{prefix}/{PACKAGES}", "files": 9} for prefix in mapped],
        "argv_prefix": named, "view": 0,
    }  # fmt: skip
    root = None if flashinfer is None else f"{flashinfer}/{PACKAGES}/flashinfer"
    return {"items": [item], "views": [{"root": root, "files": []}]}


@pytest.mark.parametrize(
    ("mapped", "flashinfer", "named", "venv", "basis"),
    [
        ([TORCH, STOCK], STOCK, STOCK, STOCK, "mapped"),  # a .pth file lends the torch of another environment
        ([TORCH, STOCK], None, STOCK, STOCK, "mapped"),
        ([STOCK, TORCH], TORCH, STOCK, TORCH, "mapped"),  # FlashInfer itself comes from the other one
        ([TORCH], TORCH, STOCK, TORCH, "mapped"),
        ([TORCH], None, STOCK, TORCH, "mapped"),
        ([], STOCK, STOCK, STOCK, "argv"),
        ([], None, None, None, None),
    ],
)
def test_where_flashinfer_lies_decides_between_mapped_environments(
    mapped: list[str], flashinfer: str | None, named: str | None, venv: str | None, basis: str | None
) -> None:
    (found,) = processes(part(mapped, flashinfer, named))
    assert (found.venv, found.venv_basis, found.named_venv) == (venv, basis, named)


def test_an_interpreter_behind_a_link_is_of_the_environment_that_was_looked_at() -> None:
    item = {"pid": 7, "argv_prefix": "/srv/current", "argv_real": "/data/v2"}
    (found,) = processes({"items": [item]}, places={("", "/data/v2"): "/opt/serve"})
    assert (found.venv, found.venv_basis, found.named_venv) == ("/opt/serve", "argv", "/srv/current")
    (found,) = processes({"items": [item]}, places={("", "/data/v3"): "/opt/serve"})
    assert (found.venv, found.venv_basis) == ("/srv/current", "argv")
    # A renamed child has none of its own: its launcher's counts, and VIRTUAL_ENV leads nowhere.
    child = {"pid": 8, "launcher": {"pid": 7, "argv_prefix": "/srv/current", "argv_real": "/data/v2"}}
    (found,) = processes({"items": [child]}, places={("", "/data/v2"): "/opt/serve"})
    assert (found.venv, found.venv_basis) == ("/opt/serve", "argv")


def test_what_could_not_be_looked_at_is_told_one_by_one_and_as_a_whole() -> None:
    unseen = {"unread": [{"pid": 9, "user": "bob", "error": "EACCES"}, {"user": "eve"}], "unread_count": 3}
    part = {**unseen, "hidden": "EPERM", "error": "timeout"}
    assert [(one.pid, one.user, one.error) for one in unread_processes(part)] == [(9, "bob", "EACCES")]
    assert hidden(part) == "EPERM"
    assert unread(part) == (
        "process 9 of bob: EACCES",
        "2 more",
        "the processes of other users: hidden (EPERM)",
        "timeout",
    )


@pytest.mark.parametrize(
    "line", ["processes: limit", "venvs: running: limit", "no Python of 3.8 or newer: the shell"]
)
def test_a_part_that_never_came_is_told_with_its_reason(line: str) -> None:
    end = {"reason": "done", "errors": ["caches: limit", line, 7]}
    facts = host_facts({"end": end})
    assert (facts.processes, facts.processes_unread) == (None, (line,))
