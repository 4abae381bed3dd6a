"""Which environment a process runs from, where its mapped files name more than one."""

from __future__ import annotations

import pytest

from fleetcheck.facts.processes import processes

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
