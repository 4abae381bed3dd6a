"""What travels is the program that stands in the files: Python's parser says so, which the bundle does without."""

from __future__ import annotations

import ast
from importlib.resources import files

import pytest

from fleetcheck.agent import bundle

MODULES = sorted({*bundle.HOST, *bundle.INSIDE, *bundle.IMPORTED})
REPLACED = ("__future__", "typing", "collections.abc")


class Bare(ast.NodeTransformer):
    """Takes docstrings out of bodies that hold more, and the imports that the bundle replaces."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] if len(node.body) > 1 or isinstance(node, ast.Module) else node.body
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom | None:
        name = node.module or ""
        return None if name in REPLACED or name.startswith("fleetcheck.") else node


def bare(source: str) -> str:
    return ast.dump(Bare().visit(ast.parse(source)))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_travels_as_it_stands(name: str) -> None:
    source = (files("fleetcheck.agent.program") / f"{name}.py").read_text(encoding="utf-8")
    text = bundle.stripped(source)
    assert ast.dump(ast.parse(text)) == bare(source)
    assert not [line for line in text.splitlines() if line.lstrip().startswith("# ")]


def test_a_docstring_that_is_all_of_its_body_stays() -> None:
    gone = 'class Gone(Exception):\n    """Why.\n\n    More.\n    """\n'
    source = f'{gone}\n\ndef following() -> int:\n    """It."""\n    return 1\n'
    text = bundle.stripped(source)
    assert ast.dump(ast.parse(text)) == bare(source)
    assert '"""It."""' not in text


@pytest.mark.parametrize("line", ['call("""a\nb""")', "x = f(1, '''a\nb''')"])
def test_a_text_of_several_lines_elsewhere_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="several lines"):
        bundle.stripped(f"def f():\n    {line}\n")
