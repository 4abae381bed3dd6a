"""The words of one start-up file that count: those of its code, not of its comments and docstrings."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Tuple

START_WORDS = ("FLASHINFER_CSRC_DIR", "flashinfer", "sys.path")
# Variables that FlashInfer reads at its import; vLLM names its backends FLASHINFER and FLASHINFER_MLA.
VARIABLES = tuple(
    "FLASHINFER_" + one
    for one in (
        "CSRC", "INCLUDE", "CUDA_ARCH", "WORKSPACE", "CUBIN", "JIT", "GEN_SRC", "AOT", "DATA", "CACHE", "BASE",
        "EXTRA", "NVCC", "DISABLE", "TVM",
    )
)  # fmt: skip
QUOTES = ('"' * 3, "'" * 3)
NAMED = ("id", "attr", "name", "asname", "arg", "module")


class StartText:
    """A text that Python runs, or the lines of a ``.pth`` file, of which it runs those alone that import.

    It is parsed only where one of the words stands in it, or an import may stand in a docstring. What does not
    parse is searched by its lines.
    """

    room = 128 << 10  # what is parsed in all: a start-up file that is followed may be any module

    def __init__(self, data: bytes, pth: "Optional[List[str]]") -> None:
        text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        self.alone = pth is not None
        self.lines = text.split("\n") if pth is None else pth
        self.parsed: "Dict[str, Any]" = {}

    def code(self) -> "Iterator[Tuple[int, str]]":
        """Yield the lines that may run, by their numbers, without their comments."""
        for number, line in enumerate(self.lines, 1):
            if not self.alone or line.startswith(("import ", "import\t")):
                yield number, line.partition("#")[0]

    def words(self) -> "List[Tuple[int, str]]":
        """Return the lines that name one of the words in code, each with the gravest of them."""
        found: "Dict[int, str]" = {}
        if self.alone:
            pieces = [(number, self.lines[number - 1]) for number, _ in self.code()]
        else:
            pieces = [(1, "\n".join(self.lines))]
        for first, text in pieces:
            if not any(word in text for word in (*START_WORDS, "FLASHINFER_")):
                continue
            tree = self._tree(text)
            for number, said in _by_line(text) if tree is None else said_in(tree):
                for word in START_WORDS:
                    if word in said or (word == "flashinfer" and any(one in said for one in VARIABLES)):
                        at = first - 1 + number
                        found[at] = min(found.get(at, word), word, key=START_WORDS.index)
                        break
        return sorted(found.items())

    def is_import(self, number: int) -> bool:
        """Whether a line that looks like an import is one, and no line of a docstring."""
        before = "\n".join(self.lines[: number - 1])
        if self.alone or not any(before.count(quote) % 2 for quote in QUOTES):
            return True
        import ast

        tree = self._tree("\n".join(self.lines))
        if tree is None:
            return True
        return any(
            isinstance(node, (ast.Import, ast.ImportFrom)) and node.lineno == number for node in ast.walk(tree)
        )

    def _tree(self, text: str) -> Any:
        """Return a text parsed, None where that does not work or is too much."""
        import ast

        if text not in self.parsed:
            StartText.room -= len(text)
            try:
                self.parsed[text] = ast.parse(text) if StartText.room >= 0 else None
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                self.parsed[text] = None
        return self.parsed[text]


def said_in(tree: Any) -> "Iterator[Tuple[int, str]]":
    """Yield the names and strings of code with their lines; not a string that stands alone, which nothing uses."""
    import ast

    waiting: "List[Tuple[Any, int]]" = [(tree, 1)]
    while waiting:
        node, line = waiting.pop()
        line = getattr(node, "lineno", line)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Constant):
            for number, part in enumerate(str(node.value).split("\n")):
                yield min(line + number, getattr(node, "end_lineno", None) or line), part
            continue
        for field in NAMED:
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield line, value
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            yield line, " ".join(node.names)
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "sys":
            yield line, "sys." + node.attr
        waiting += [(inner, line) for inner in ast.iter_child_nodes(node)]


def _by_line(text: str) -> "Iterator[Tuple[int, str]]":
    for number, line in enumerate(text.split("\n"), 1):
        yield number, line.partition("#")[0]
