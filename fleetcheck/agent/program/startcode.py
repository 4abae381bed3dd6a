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
    plain,
    tables_of,
    text_of,
)
from fleetcheck.agent.program.startpath import (
    FOLLOWED,
    PLACES,
    assign_path,
    call_on_path,
    changes_in,
    entries_of,
    is_hidden,
)
from fleetcheck.agent.program.startscan import MOST_STEPS, changed_place, defined_at_start, scan_start
from fleetcheck.agent.program.values import read_bytes

CODE_LIMIT = 65536
TABLE_LIMIT = 1 << 20
MOST_MODULES = 24
MOST_BYTES = 256 << 10
# The first two add finders for distutils alone, the third one that watches imports and moves none; the others are
# what is looked for, and change no path.
HARMLESS = ("_virtualenv", "_distutils_hack", "ddtrace", "flashinfer", "torch", "sglang", "vllm")
LARGE_CHANGES = ("sys.path.insert", "sys.path[", "sys.path =", "sys.meta_path.insert", "sys.meta_path[")


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
        self.called: "List[Any]" = []
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
                self.follow(node, names, 0)
        except (SyntaxError, ValueError):
            return  # Python would not run it either
        except (RecursionError, MemoryError):
            self.tell(file, first, True)

    def run_file(self, file: str, *, direct: bool = False) -> Names:
        """Follow a module once; ``direct`` where Python starts it by itself."""
        names = self.loaded.get(file) or Names(file, direct=direct)
        table = "__editable__" in os.path.basename(file)
        full = len(self.loaded) >= MOST_MODULES or self.bytes > MOST_BYTES
        if file in self.loaded or (full and not table and not direct):
            return names
        self.loaded[file] = names
        try:
            data = read_bytes(file, TABLE_LIMIT)
        except OSError as error:
            self.site.shut(file, error)
            return names
        text = data.decode("utf-8", "replace")
        self.bytes += 0 if table else min(len(data), CODE_LIMIT)
        if len(data) >= (TABLE_LIMIT if table else CODE_LIMIT):
            # Too much to be parsed: what Python starts by itself is told, a module that it imports by its words.
            if direct or len(data) >= TABLE_LIMIT or any(change in text for change in LARGE_CHANGES):
                self.tell(file, 1, True)
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

    def tell(self, file: str, line: int, before: bool) -> None:
        if len(self.unread) < 20 and (file, line, before) not in self.unread:
            self.unread.append((file, line, before))

    def load(self, name: str, places: "List[str] | None" = None) -> None:
        """Follow what an import of a name runs, other than the standard library's."""
        if name.partition(".")[0] in HARMLESS or name.partition(".")[0] in sys.builtin_module_names:
            return
        for file in module_files(self.site.path if places is None else places, name):
            if os.path.dirname(file.replace("/__init__.py", "")) in self.library:
                return
            self.run_file(file)

    def follow(self, node: Any, names: Names, depth: int) -> None:
        import ast

        self.steps += 1
        if self.steps > MOST_STEPS or depth > DEEPEST:
            scan_start(self, node, names)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                names.modules[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
                self.load(alias.name)
        elif isinstance(node, ast.ImportFrom):
            self._import_from(node, names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.functions[node.name] = node
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    scan_start(self, inner, names)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self._assign(node, names)
        elif isinstance(node, ast.Expr):
            self._expression(node.value, names, depth)
        elif isinstance(node, ast.If):
            holds = condition(node.test, names, self.site.path)
            if holds is None:
                scan_start(self, node, names)
            for inner in (node.body if holds else node.orelse) if holds is not None else ():
                self.follow(inner, names, depth + 1)
        elif isinstance(node, (ast.Try, ast.With)):
            for inner in [*node.body, *getattr(node, "orelse", ()), *getattr(node, "finalbody", ())]:
                self.follow(inner, names, depth + 1)
            for handler in getattr(node, "handlers", ()):
                scan_start(self, handler, names)
        elif isinstance(node, ast.For) and isinstance(node.iter, (ast.List, ast.Tuple)) and not node.orelse:
            for value in node.iter.elts:
                self._bind(getattr(node.target, "id", ""), value, names)
                for inner in node.body:
                    self.follow(inner, names, depth + 1)
        else:
            scan_start(self, node, names)

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
            if whole == "sys.*":
                names.modules.update({place[4:]: place for place in PLACES if place.startswith("sys.")})
            self.load(whole, places)

    def _assign(self, node: Any, names: Names) -> None:
        import ast

        again = isinstance(node, ast.AugAssign)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value, line = node.value, names.first + node.lineno - 1
        if value is None:
            return  # an annotation alone
        moved = [one for one in targets if changed_place(one, names, again)]
        for target in moved:
            try:
                if changed_place(target, names, True) != "sys.path":
                    raise ValueError("a finder")
                assign_path(self.site, node, target, names)
            except Exception:
                self.tell(names.file, line, True)
        for target in [one for one in targets if one not in moved]:
            alone = isinstance(target, ast.Name) and not again
            for inner in ast.walk(target):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    self._bind(inner.id, (moved[0] if moved else value) if alone else node, names)
            stands = dotted(value, names)
            if (not (alone or again) and stands in PLACES) or (names.direct and is_hidden(stands)):
                self.tell(names.file, line, True)
        if isinstance(value, ast.Call):
            self._expression(value, names, 1)
        elif not moved:
            scan_start(self, value, names)

    def _bind(self, name: str, value: Any, names: Names, given: "Names | None" = None) -> None:
        """Let a name stand for the path, a method of it, or ``sys``; else for a value, as it is by now.

        ``given``: the names by which the value is read, where they are others.
        """
        import ast

        given = given or names
        stands = dotted(value, given)
        names.modules.pop(name, None)
        if stands == "sys" or stands in PLACES or stands.rpartition(".")[0] in PLACES:
            names.modules[name] = stands
            return
        try:
            texts = entries_of(value, given, self.site.path)
            value = ast.List([ast.Constant(one) for one in texts], ast.Load())
        except Exception:
            text = plain(value, given)  # else it is read where it is used, and told there
            value = ast.Constant(text) if text else value
        names.values[name] = value

    def _expression(self, node: Any, names: Names, depth: int) -> None:
        import ast

        if not isinstance(node, ast.Call):
            scan_start(self, node, names)
            return
        name = dotted(node.func, names)
        owner, _, what = name.rpartition(".")
        line = names.first + node.lineno - 1
        try:
            if name in ("__import__", "importlib.import_module"):
                self.load(text_of(node.args[0], names))
            elif owner == "sys.path" and what in FOLLOWED:
                call_on_path(self.site, what, node.args, names)
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
                scan_start(self, node, names)
        except Exception:
            if name != "exec" or names.direct:
                before = what not in ("append", "extend", "addsitedir", "map_module")
                self.tell(names.file, line, before or changes_in(node.args, names))

    def _exec(self, node: Any, names: Names, line: int) -> None:
        inner = Names(names.file, direct=names.direct)
        inner.modules.update(names.modules)
        self.read(text_of(node.args[0], names), names.file, line, inner)

    def _called(self, node: Any, name: str, names: Names, depth: int) -> bool:
        """Follow a call of a function of this text or of a module that was followed; False where it is neither."""
        import ast

        home, function = defined_at_start(self, name, names)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        inner = home.copy()
        given, later = [one.arg for one in function.args.args], function.args.defaults
        for argument, value in zip(given[len(given) - len(later) :], later):  # noqa: B905
            self._bind(argument, value, inner, home)
        for argument, value in [*zip(given, node.args), *((one.arg, one.value) for one in node.keywords)]:  # noqa: B905
            self._bind(argument or "", value, inner, names)
        for statement in function.body:
            self.follow(statement, inner, depth + 1)
        return True
