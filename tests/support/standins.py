"""Stand-ins for what FlashInfer imports and a test does not install: torch alone is 200 MB and more.

In: a site-packages folder. Out: two files in it, by which an import of torch and the like that is not installed
gives a module in which every name is there and does nothing. FlashInfer's own files run, for real.
"""

from __future__ import annotations

from pathlib import Path

ROOTS = (
    "torch", "numpy", "tvm_ffi", "requests", "tqdm", "einops", "pynvml", "packaging", "filelock", "tabulate",
    "click", "jinja2", "typing_extensions",
)  # fmt: skip
FINDER = '''
import importlib.abc
import importlib.machinery
import sys
import types


class Kind(type):
    """Every name, call and operation of it gives it back; as a number it is 0, as a condition false."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing

    def __call__(cls, *given, **named):
        return Nothing

    def __getitem__(cls, key):
        return Nothing

    def __or__(cls, other):
        return Nothing

    __ror__ = __or__

    def __iter__(cls):
        return iter(())

    def __bool__(cls):
        return False

    def __index__(cls):
        return 0

    def __lt__(cls, other):
        return False

    __gt__ = __le__ = __ge__ = __lt__


class Nothing(metaclass=Kind):
    pass


class Module(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in ROOTS:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = Module(spec.name)
        module.__version__ = "2.9.0"
        if spec.name == "torch":  # 0.7.x checks a limit of float32 as it starts
            module.finfo = lambda kind: types.SimpleNamespace(max=3.4028234663852886e38)
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())
'''


def stand_in(site: Path) -> None:
    """Make the missing packages importable from this folder."""
    (site / "_standins.py").write_text(f"ROOTS = {ROOTS!r}\n{FINDER}")
    (site / "standins.pth").write_text("import _standins\n")
