"""What start-up code does to ``sys.path``, where an expression spells it out: lists, moved entries, aliases.

Every use of the path or of the finders that is neither a plain look nor followed here is told as unread.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

from fleetcheck.agent.program.startnames import Names, dotted, plain, text_of

PLACES = ("sys.path", "sys.meta_path", "sys.path_hooks", "sys.path_importer_cache", "builtins.__import__")
READS = ("index", "count", "copy", "get", "keys", "items", "values", "__contains__", "__len__", "__iter__")
# What takes a list as an argument, and neither keeps nor changes it.
READERS = (
    "len", "list", "tuple", "set", "frozenset", "sorted", "any", "all", "enumerate", "print", "iter", "reversed",
    "str", "repr", "bool", "map", "filter", "zip", "type", "id", "isinstance", "hasattr", "dict.fromkeys",
)  # fmt: skip
FOLLOWED = ("insert", "append", "extend", "remove", "pop")


def entries_of(node: Any, names: Names, path: "List[str]") -> "List[str]":
    """Return the texts of an expression that is a list, of the path or of texts; raise where it cannot be read."""
    import ast

    if dotted(node, names) == "sys.path":
        return list(path)
    if isinstance(node, ast.Name) and node.id in names.values:
        return entries_of(names.values[node.id], names, path)
    if isinstance(node, (ast.List, ast.Tuple)):
        found: "List[str]" = []
        for one in node.elts:
            more = isinstance(one, ast.Starred)
            found += entries_of(getattr(one, "value", None), names, path) if more else [text_of(one, names)]
        return found
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return entries_of(node.left, names, path) + entries_of(node.right, names, path)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        if node.slice.lower is node.slice.upper is node.slice.step is None:
            return entries_of(node.value, names, path)
    if isinstance(node, ast.Call):
        name = dotted(node.func, names)
        if name == "sys.path.copy":
            return list(path)
        if name in ("list", "tuple") and len(node.args) == 1:
            return entries_of(node.args[0], names, path)
    raise ValueError("not a list")


def place_of(node: Any, names: Names, path: "List[str]") -> int:
    """Return an index into the path: one from its end, or an entry's. PYTHONPATH moves those from the front."""
    import ast

    if isinstance(node, ast.Call) and dotted(node.func, names) == "sys.path.index":
        return path.index(text_of(node.args[0], names))
    at = int(ast.literal_eval(node))
    if at >= 0:
        raise ValueError("counted from the front")
    return at


def entry_of(node: Any, names: Names, site: Any) -> str:
    """Return one entry that an expression is, taken out of the path where it pops it."""
    import ast

    if isinstance(node, ast.Call) and dotted(node.func, names) == "sys.path.pop":
        return str(site.path.pop(place_of(node.args[0], names, site.path) if node.args else -1))
    if isinstance(node, ast.Subscript) and dotted(node.value, names) == "sys.path":
        return str(site.path[place_of(getattr(node.slice, "value", node.slice), names, site.path)])
    return text_of(node, names)


def call_on_path(site: Any, what: str, args: "List[Any]", names: Names) -> None:
    """Do what a call of a method of ``sys.path`` does; raise where that cannot be read."""
    import ast

    if what == "insert":
        at = args[0]
        where = place_of(at, names, site.path) if isinstance(at, ast.Call) else int(ast.literal_eval(at))
        site.add_path(entry_of(args[1], names, site), where)
    elif what == "append":
        site.add_path(entry_of(args[0], names, site))
    elif what == "extend":
        for text in entries_of(args[0], names, site.path):
            site.add_path(text)
    elif what == "remove":
        site.path.remove(entry_of(args[0], names, site))
    else:
        site.path.pop(place_of(args[0], names, site.path) if args else -1)


def assign_path(site: Any, node: Any, target: Any, names: Names) -> None:
    """Do what an assignment to ``sys.path``, or to a part of it, does; raise where that cannot be read."""
    import ast

    value = entries_of(node.value, names, site.path)
    if isinstance(node, ast.AugAssign):
        if not isinstance(node.op, ast.Add) or dotted(target, names) != "sys.path":
            raise ValueError("not put behind")
        for text in value:
            site.add_path(text)
        return
    if dotted(target, names) == "sys.path":
        # Another list from here on: what stood for the old one changes nothing any more.
        for name in [one for one, stands in names.modules.items() if stands == "sys.path"]:
            del names.modules[name]
    else:
        part = target.slice
        bounds = [getattr(part, "lower", None), getattr(part, "upper", None), getattr(part, "step", None)]
        front = [getattr(one, "value", one) for one in bounds] in ([None, 0, None], [0, 0, None])
        if front:
            value += site.path
        elif bounds != [None, None, None] or not isinstance(part, ast.Slice):
            raise ValueError("a part of it")
    site.replace(value)


def changes_in(nodes: "List[Any]", names: Names) -> bool:
    """Whether a method that changes the path or the finders is called anywhere below."""
    import ast

    for node in nodes:
        for inner in ast.walk(node):
            place, what = split_place(dotted(inner.func, names) if isinstance(inner, ast.Call) else "")
            if what and what not in READS:
                return True
    return False


def split_place(name: str) -> "Tuple[str, str]":
    """Return the place that a dotted name begins with, and what is taken of it; nothing for another name."""
    for place in PLACES:
        if name == place or name.startswith(place + "."):
            return place, name[len(place) + 1 :].partition(".")[0]
    return "", ""


def escapes(tree: Any, names: Names) -> "Iterator[Any]":
    """Yield where the path or the finders are handed to something that may change them under another name."""
    import ast

    above: "Dict[Any, Any]" = {}
    kinds = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
    for node in ast.walk(tree):
        for inner in ast.iter_child_nodes(node):
            above[inner] = node
            if isinstance(node, ast.Attribute) or not isinstance(inner, kinds):
                continue  # the whole of a dotted name is looked at
            if not isinstance(getattr(inner, "ctx", None), (ast.Store, ast.Del)):
                name = dotted(inner, names)
                place, what = split_place(name)
                method = bool(what) and what not in READS
                if name in PLACES or method:
                    if not _harmless(inner, above, names, method):
                        yield inner
                elif (
                    names.direct
                    and is_hidden(name)
                    and not (name == "sys.__dict__" and isinstance(node, ast.Subscript))
                ):
                    yield inner


def is_hidden(name: str) -> bool:
    """Whether a name may stand for the path: an attribute of ``sys`` that is computed, or all of them."""
    return name.startswith(("sys.?", "sys.__dict__"))


def _harmless(node: Any, above: "Dict[Any, Any]", names: Names, method: bool) -> bool:
    import ast

    parent = above[node]
    if isinstance(parent, ast.Call) and parent.func is node:
        return True  # a call of a method is told for itself
    if method:
        return False
    while isinstance(parent, (ast.BoolOp, ast.keyword)) and parent in above:
        node, parent = parent, above[parent]
    if isinstance(parent, ast.Call):
        called = dotted(parent.func, names)
        return called in READERS or called.rpartition(".")[2] in ("join", "extend", "update")
    if isinstance(parent, (ast.For, ast.comprehension)):
        return parent.iter is node
    if isinstance(parent, (ast.If, ast.While, ast.IfExp)):
        return parent.test is node
    looks = (ast.Subscript, ast.Compare, ast.Starred, ast.BinOp, ast.UnaryOp, ast.AugAssign)
    return isinstance(parent, (*looks, ast.FormattedValue, ast.Expr, ast.Assert))


def plain_attribute(call: Any, names: Names) -> "str | None":
    """Return the dotted name that ``setattr`` or ``delattr`` changes; None for another call."""
    if getattr(call.func, "id", "") not in ("setattr", "delattr") or len(call.args) < 2:
        return None
    return dotted(call.args[0], names) + "." + (plain(call.args[1], names) or "?")
