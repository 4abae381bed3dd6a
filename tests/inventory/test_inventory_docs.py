"""docs/inventory.md: its examples load, its errors are the real ones, and every key stands in it."""

import re
from pathlib import Path

import pytest

from fleetcheck.errors import InputError
from fleetcheck.inventory import shape
from fleetcheck.inventory.load import parse
from fleetcheck.inventory.model import Expect
from fleetcheck.inventory.source import Text

PAGE = (Path(__file__).parents[2] / "docs" / "inventory.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_example_loads() -> None:
    assert len(blocks("yaml")) >= 4
    for text in blocks("yaml"):
        assert parse("site.yaml", [Text("site.yaml", text)], []).inventory.targets


def test_the_group_example_resolves_as_the_page_says() -> None:
    (text,) = (one for one in blocks("yaml") if "site:" in one)
    by_name = {one.name: one for one in parse("site.yaml", [Text("site.yaml", text)], []).inventory.targets}
    assert by_name["gpu15.lab"].expect == Expect(gpus=8, driver=">=590")
    assert by_name["gpu16.lab"].user == "root"
    assert by_name["gpu01.lab"].groups == ("serving", "site")


def test_the_errors_shown_are_those_of_the_file_shown() -> None:
    (lines,) = blocks("text")
    (text,) = blocks("yaml-with-errors")
    with pytest.raises(InputError) as caught:
        parse("site.yaml", [Text("site.yaml", text)], [])
    assert str(caught.value) == lines.strip()


@pytest.mark.parametrize(
    "model", [shape.Document, shape.Group, shape.VenvEntry, shape.WaiverEntry, shape.MaintenanceEntry, Expect]
)
def test_every_key_is_documented(model: type) -> None:
    for key in model.model_fields:
        assert f"`{key}`" in PAGE or f"{{{key}:" in PAGE, key
