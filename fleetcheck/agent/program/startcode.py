"""What code that Python runs at every start would do to the search path, read as data: nothing of it is executed.

Statements that name their paths literally are followed, and finders of editable installs that hold a literal
table: setuptools' ``MAPPING``, scikit-build-core's ``install({...})``, ``map_module`` of the package editables.
Other code that changes the path or the finders is told by file and line, as unread.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Tuple

from fleetcheck.agent.program.startnames import (
    DEEPEST,
    Names,
    condition,
    dotted,
    module_files,
    tables_of,
    text_of,
    texts_of,
)
from fleetcheck.agent.program.values import read_bytes

CODE_LIMIT = 65536
TABLE_LIMIT = 1 << 20
MOST_MODULES = 24
MOST_STEPS = 4000
MOST_BYTES = 256 << 10
# The first two add finders for distutils alone; the others are what is looked for, and change no path.
HARMLESS = ("_virtualenv", "_distutils_hack", "flashinfer", "torch", "sglang", "vllm")
PLACES = ("sys.path", "sys.meta_path", "sys.path_hooks", "sys.path_importer_cache")
CHANGES_PATH = ("insert", "append", "extend", "remove", "pop", "clear", "reverse", "sort", "__setitem__")
LARGE_CHANGES = ("sys.path.insert", "sys.path[", "sys.path =", "sys.meta_path.insert", "sys.meta_path[")
RUNS = ("exec", "eval", "runpy.run_path", "site.addpackage", "site.main", "site.addsitepackages")


class StartCode:
    """Follows start-up code over one site. ``front`` and ``back``: tables of finders before and behind the path's.

    ``unread``: file, line, and whether what stands there can put a package in front of one that the path has.
    """

    def __init__(self, site: Any) -> None:
        self.site = site
        self.library = list(site.path)
        self.front: "Dict[str, Any]" = {}
        self.back: "Dict[str, Any]" = {}
        self.unread: "List[Tuple[str, int, bool]]" = []
        self.loaded: "Dict[str, Names]" = {}
        self.steps = self.bytes = 0

    def names_of_line(self, folder: str) -> Names:
        """Return the names that the lines of a ``.pth`` file of a folder begin with."""
        import ast

        names = Names("", direct=True)
        names.values["sitedir"] = ast.Constant(folder)
        return names

    def read(self, text: str, file: str, first: int, names: Names) -> None:
        """Follow a text that stands in a file from its line ``first`` on."""
        import ast

        names.file, names.first = file, first
        try:
            body = ast.parse(text).body
            for node in body:
                self._statement(node, names, 0)
        except (SyntaxError, ValueError):
            return  # Python would not run it either
        except (RecursionError, MemoryError):
            self._unread(file, first, True)

    def run_file(self, file: str, *, direct: bool = False) -> Names:
        """Follow a module once; ``direct`` where Python starts it by itself."""
        names = self.loaded.get(file) or Names(file, direct=direct)
        table = "__editable__" in os.path.basename(file)
        full = len(self.loaded) >= MOST_MODULES or self.bytes > MOST_BYTES
        if file in self.loaded or (full and not table):
            return names
        self.loaded[file] = names
        try:
            data = read_bytes(file, limit := TABLE_LIMIT if table else CODE_LIMIT)
        except OSError as error:
            self.site.shut(file, error)
            return names
        text = data.decode("utf-8", "replace")
        self.bytes += 0 if table else len(data)
        if len(data) >= limit:
            if any(change in text for change in LARGE_CHANGES):
                self._unread(file, 1, True)
        elif table and self._take(text):
            pass  # what its functions do is known
        elif any(word in text for word in ("sys", "site", "import", "exec", "install(", "map_module")):
            self.read(text, file, 1, names)
        return names

    def _take(self, text: str) -> bool:
        tables = tables_of(text)
        for name, places in tables[1].items() if tables else ():
            self.back.setdefault(str(name), list(places) if isinstance(places, (list, tuple)) else [])
        self._map(self.back, tables[0] if tables else {})
        return tables is not None

    def _map(self, finder: "Dict[str, Any]", table: "Dict[Any, Any]") -> None:
        for name, place in table.items():
            if isinstance(name, str) and isinstance(place, str) and os.path.isabs(place):
                finder[name] = place

    def _unread(self, file: str, line: int, before: bool) -> None:
        if len(self.unread) < 20 and (file, line, before) not in self.unread:
            self.unread.append((file, line, before))

    def _load(self, name: str, places: "List[str] | None" = None) -> None:
        """Follow what an import of a name runs, other than the standard library's."""
        if name.partition(".")[0] in HARMLESS or name.partition(".")[0] in sys.builtin_module_names:
            return
        for file in module_files(self.site.path if places is None else places, name):
            if os.path.dirname(file.replace("/__init__.py", "")) in self.library:
                return
            self.run_file(file)

    def _statement(self, node: Any, names: Names, depth: int) -> None:
        import ast

        self.steps += 1
        if self.steps > MOST_STEPS or depth > DEEPEST:
            self._scan(node, names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                names.modules[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                self._load(alias.name)
        elif isinstance(node, ast.ImportFrom):
            self._import_from(node, names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            names.functions[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self._assign(node, names)
        elif isinstance(node, ast.Expr):
            self._expression(node.value, names, depth)
        elif isinstance(node, ast.If):
            holds = condition(node.test, names, self.site.path)
            if holds is None:
                self._scan(node, names)
            for inner in (node.body if holds else node.orelse) if holds is not None else ():
                self._statement(inner, names, depth + 1)
        elif isinstance(node, (ast.Try, ast.With)):
            for inner in [*node.body, *getattr(node, "orelse", ()), *getattr(node, "finalbody", ())]:
                self._statement(inner, names, depth + 1)
        elif isinstance(node, ast.For) and isinstance(node.iter, (ast.List, ast.Tuple)) and not node.orelse:
            for value in node.iter.elts:
                names.values[getattr(node.target, "id", "")] = value
                for inner in node.body:
                    self._statement(inner, names, depth + 1)
        elif not isinstance(node, ast.ClassDef):
            self._scan(node, names)

    def _import_from(self, node: Any, names: Names) -> None:
        places = None
        if node.level:
            place = names.file
            for _ in range(node.level):
                place = os.path.dirname(place)
            places = [place]
        module = node.module or ""
        for alias in node.names:
            whole = module + "." + alias.name if module else alias.name
            if not node.level:
                names.modules[alias.asname or alias.name] = whole
            self._load(whole, places)

    def _assign(self, node: Any, names: Names) -> None:
        import ast

        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            below = target.value if isinstance(target, ast.Subscript) else target
            place = dotted(below, names)
            if place in PLACES:
                self._assign_path(node, target, place, names)
            elif isinstance(target, ast.Name) and not isinstance(node, ast.AugAssign) and node.value is not None:
                names.values[target.id] = node.value
        if getattr(node, "value", None) is not None:
            self._scan(node.value, names)

    def _assign_path(self, node: Any, target: Any, place: str, names: Names) -> None:
        import ast

        line = names.first + node.lineno - 1
        try:
            if place != "sys.path":
                raise ValueError("a finder")
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                for text in texts_of(node.value, names):
                    self.site.add_path(text)
                return
            part = getattr(target, "slice", None)
            part = getattr(part, "value", part) if type(part).__name__ == "Index" else part
            upper = getattr(getattr(part, "upper", None), "value", None)
            lower = getattr(getattr(part, "lower", None), "value", 0)
            if not isinstance(part, ast.Slice) or upper != 0 or lower != 0:
                raise ValueError("not put in front")
            for text in reversed(texts_of(node.value, names)):
                self.site.add_path(text, 0)
        except Exception:
            self._unread(names.file, line, True)

    def _expression(self, node: Any, names: Names, depth: int) -> None:
        import ast

        if not isinstance(node, ast.Call):
            self._scan(node, names)
            return
        name = dotted(node.func, names)
        owner, _, what = name.rpartition(".")
        line = names.first + node.lineno - 1
        try:
            if name in ("__import__", "importlib.import_module"):
                self._load(text_of(node.args[0], names))
            elif name == "sys.path.insert":
                at = ast.literal_eval(node.args[0])
                self.site.add_path(text_of(node.args[1], names), int(at))
            elif name == "sys.path.append":
                self.site.add_path(text_of(node.args[0], names))
            elif name == "sys.path.extend":
                for text in texts_of(node.args[0], names):
                    self.site.add_path(text)
            elif name == "site.addsitedir":
                self.site.add_folder(text_of(node.args[0], names))
            elif name == "exec":
                self._exec(node, names, line)
            elif what == "map_module" and len(node.args) == 2:
                table = {text_of(node.args[0], names): text_of(node.args[1], names)}
                self._map(self.back, table)
            elif what == "install" and node.args and isinstance(node.args[0], ast.Dict):
                self._map(self.front, ast.literal_eval(node.args[0]))
            elif not self._called(node, name, names, depth):
                self._scan(node, names)
        except Exception:
            if name != "exec" or names.direct:
                self._unread(names.file, line, what not in ("append", "extend", "addsitedir", "map_module"))

    def _exec(self, node: Any, names: Names, line: int) -> None:
        inner = Names(names.file, direct=names.direct)
        inner.modules.update(names.modules)
        self.read(text_of(node.args[0], names), names.file, line, inner)

    def _called(self, node: Any, name: str, names: Names, depth: int) -> bool:
        """Follow a call of a function of this text or of a module that was followed; False where it is neither."""
        owner, _, what = name.rpartition(".")
        home = names
        if owner:
            files = module_files(self.site.path, owner)
            if len(files) != owner.count(".") + 1 or files[-1] not in self.loaded:
                return False
            home = self.loaded[files[-1]]
        function = home.functions.get(what)
        if function is None:
            return False
        inner = Names(home.file, home.first)
        inner.values = {**home.values, **dict(zip([one.arg for one in function.args.args], node.args))}  # noqa: B905
        inner.functions, inner.modules = home.functions, dict(home.modules)
        for statement in function.body:
            self._statement(statement, inner, depth + 1)
        return True

    def _scan(self, node: Any, names: Names) -> None:
        """Tell of a change of the path or the finders anywhere below a node, and follow its imports."""
        import ast

        for inner in ast.walk(node):
            if isinstance(inner, (ast.Import, ast.ImportFrom)) and inner is not node and self.steps <= MOST_STEPS:
                self._statement(inner, names, 1)
            targets: "List[Any]" = []
            if isinstance(inner, (ast.Assign, ast.Delete)):
                targets = list(inner.targets)
            elif isinstance(inner, ast.AugAssign):
                targets = [inner.target]
            where = [one.value if isinstance(one, ast.Subscript) else one for one in targets]
            line = names.first + getattr(inner, "lineno", 1) - 1
            if any(dotted(one, names) in PLACES for one in where):
                self._unread(names.file, line, True)
            if isinstance(inner, ast.Call):
                self._scan_call(inner, names, line)

    def _scan_call(self, call: Any, names: Names, line: int) -> None:
        name = dotted(call.func, names)
        owner, _, what = name.rpartition(".")
        if name in ("__import__", "importlib.import_module") and call.args:
            text = getattr(call.args[0], "value", None)
            if isinstance(text, str):
                self._load(text)
        elif (name in RUNS and names.direct) or (owner in PLACES and what in CHANGES_PATH):
            self._unread(names.file, line, what not in ("append", "extend"))
        elif name == "site.addsitedir":
            self._unread(names.file, line, False)
