"""What is told of start-up code that is not followed: each change of the path or the finders, by its line."""

from __future__ import annotations

from typing import Any, List, Tuple

from fleetcheck.agent.program.startnames import Names, dotted, module_files
from fleetcheck.agent.program.startpath import PLACES, READS, changes_in, escapes, plain_attribute, split_place

MOST_STEPS = 4000
MOST_CALLED = 40
RUNS = ("exec", "eval", "runpy.run_path", "site.addpackage", "site.main", "site.addsitepackages")


def changed_place(target: Any, names: Names, inside: bool) -> str:
    """Return which of the places an assignment changes: a name alone is bound anew, where not ``inside``."""
    import ast

    if isinstance(target, ast.Name) and not inside:
        return ""
    for one in (target, getattr(target, "value", None)) if isinstance(target, ast.Subscript) else (target,):
        if dotted(one, names) in PLACES:
            return dotted(one, names)
    return ""


def defined_at_start(code: Any, name: str, names: Names) -> "Tuple[Names, Any]":
    """Return the function that a name is, of this text or of a module that was followed, or its class; or None."""
    import ast

    owner, _, what = name.rpartition(".")
    home = names
    if owner and owner not in names.functions:
        files = module_files(code.site.path, owner) if code.loaded else []
        missing = owner.count(".") + 1 - len(files)
        if missing > 1 or not files or files[-1] not in code.loaded:
            return names, None
        home = code.loaded[files[-1]]
        owner = owner.rpartition(".")[2] if missing else ""
    made = home.functions.get(owner or what)
    return home, made if not owner or isinstance(made, ast.ClassDef) else None


def scan_start(code: Any, node: Any, names: Names) -> None:
    """Tell of a change of the path or the finders anywhere below a node, and follow its imports."""
    import ast

    for inner in ast.walk(node):
        if isinstance(inner, (ast.Import, ast.ImportFrom)) and inner is not node and code.steps <= MOST_STEPS:
            code.follow(inner, names, 1)
        targets: "List[Any]" = []
        if isinstance(inner, (ast.Assign, ast.Delete)):
            targets = list(inner.targets)
        elif isinstance(inner, (ast.AugAssign, ast.AnnAssign, ast.For)):
            targets = [inner.target]
        line = names.first + getattr(inner, "lineno", 1) - 1
        if any(changed_place(one, names, isinstance(inner, ast.AugAssign)) for one in targets):
            code.tell(names.file, line, True)
        for one in targets:
            for name in ast.walk(one):  # whether it is bound so is not known: its value is none that is read
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    names.values[name.id] = inner
        if isinstance(inner, ast.Call):
            _scan_call(code, inner, names, line)
    for inner in escapes(node, names):
        code.tell(names.file, names.first + inner.lineno - 1, True)


def _scan_call(code: Any, call: Any, names: Names, line: int) -> None:
    name = dotted(call.func, names)
    place, what = split_place(name)
    if name in ("__import__", "importlib.import_module") and call.args:
        text = getattr(call.args[0], "value", None)
        if isinstance(text, str):
            code.load(text)
    elif (name in RUNS and names.direct) or plain_attribute(call, names) in PLACES:
        code.tell(names.file, line, True)
    elif what and what not in READS:
        if place != "sys.path_importer_cache":  # a cache is filled anew
            before = what not in ("append", "extend") or changes_in(call.args, names)
            code.tell(names.file, line, before)
    elif name == "site.addsitedir":
        code.tell(names.file, line, False)
    else:
        home, made = defined_at_start(code, name, names)
        if made is not None and made not in code.called and len(code.called) < MOST_CALLED:
            code.called.append(made)
            scan_start(code, made, home.copy())
