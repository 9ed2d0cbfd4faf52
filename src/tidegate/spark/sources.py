"""Imports the modules of one folder, and records which source runs.

Rules:
- A module is compiled from the source that is hashed, read once. Bytecode caches are not used: a file that was edited within a
  second, to the same length, has the same cache.
- Modules that were imported before are used as long as every one of them is what its file holds now. Otherwise all modules of
  the folder are imported anew: they refer to each other. A task's process is forked from one that may be days old.
- A module is looked up before it is imported, and nothing outside the folder is taken for it: no installed package, no module
  of Python itself, nothing behind a symbolic link that leaves the folder.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from tidegate.core.errors import TransformError

_LOCK = threading.RLock()


@dataclass(frozen=True)
class _Source:
    """The source that a module was compiled from."""

    file: Path
    text: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text).hexdigest()

    @property
    def is_current(self) -> bool:
        try:
            return self.file.read_bytes() == self.text
        except OSError:
            return False


_SOURCES: dict[str, _Source] = {}
"""The source of each module that was imported here, by its name."""


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        text = self.get_data(self.path)
        _SOURCES[fullname] = _Source(Path(self.path), text)
        return compile(text, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds the modules of one folder before anything else of the same name; those of Python itself excepted."""

    folder: Path | None = None

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        del path, target
        file = None if self.folder is None or _of_python(name) else _file_of(name, self.folder)
        if file is None:
            return None
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        return spec_from_file_location(name, file, loader=_Loader(name, str(file)), submodule_search_locations=inside)


_FINDER = _Finder()


def import_module(name: str, folder: Path) -> tuple[ModuleType, str, tuple[str, ...]]:
    """The module, the version of its source, and the names of all modules in the folder that the version covers.

    The version is twelve hex digits: of the module's own source where it imports nothing else of the folder; otherwise of that
    and of all it imports of the folder, directly or not, inside functions too. A package that holds nothing but a docstring
    does not count.

    Args:
        name: dotted.
        folder: resolved.

    Raises:
        TransformError: there is no such module in the folder, or it may not be used.
        Exception: whatever the module raises.
    """
    file = _look_up(name, folder)
    with _LOCK:
        _prepare(name, folder)
        module = importlib.import_module(name)
        if not _is_of(module, file):
            raise TransformError(
                f"{name} is imported from {getattr(module, '__file__', None)}, not from {folder}",
                fix="Give the module another name",
            )
        used = _closure(name, folder)
        return module, _version(used), tuple(used)


def _look_up(name: str, folder: Path) -> Path:
    if _of_python(name):
        raise TransformError(
            f"{name} is a module of Python itself", fix=f"Name a module in {folder} that has a name of its own"
        )
    file = _file_of(name, folder)
    if file is None or any(part.startswith("__") for part in name.split(".")):
        missing = folder.joinpath(*name.split(".")).with_suffix(".py")
        raise TransformError(
            f"there is no module {name} in {folder}", fix=f"Create {missing}, or correct the pipeline's transform"
        )
    for each in [file, *_packages(name, folder)]:
        if not each.resolve().is_relative_to(folder):
            raise TransformError(
                f"{each} is a link to {each.resolve()}, outside of {folder}",
                fix="Put the module itself into the folder of transforms",
            )
    return file


def _of_python(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def _file_of(name: str, folder: Path) -> Path | None:
    place = folder.joinpath(*name.split("."))
    return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()), None)


def _packages(name: str, folder: Path) -> Iterator[Path]:
    """The `__init__.py` of each package that a module is in, which is run before it."""
    parts = name.split(".")
    for depth in range(1, len(parts)):
        file = folder.joinpath(*parts[:depth]) / "__init__.py"
        if file.is_file():
            yield file


def _prepare(name: str, folder: Path) -> None:
    """Put the folder first on the path, and drop the modules that must be imported anew."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.folder = folder
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    package = name.partition(".")[0]
    ours = [loaded for loaded, module in list(sys.modules.items()) if _is_under(module, folder)]
    # a package of the same name, from another folder
    others = [loaded for loaded in sys.modules if loaded.partition(".")[0] == package and loaded not in ours]
    for loaded in [*([] if all(map(_is_current, ours)) else ours), *others]:
        del sys.modules[loaded]
        _SOURCES.pop(loaded, None)
    importlib.invalidate_caches()


def _is_under(module: ModuleType, folder: Path) -> bool:
    # not by getattr: some modules import others when an attribute is read
    known = getattr(module, "__dict__", {})
    places = [known["__file__"]] if known.get("__file__") else list(known.get("__path__", ()))
    return bool(places) and all(str(place).startswith(f"{folder}{os.sep}") for place in places)


def _is_current(name: str) -> bool:
    """Whether a module of the folder is what its file holds now; a package without a file holds nothing."""
    source = _SOURCES.get(name)
    if source is None:
        return getattr(sys.modules[name], "__file__", None) is None
    return _is_of(sys.modules[name], source.file) and source.is_current


def _is_of(module: ModuleType, file: Path) -> bool:
    return getattr(module, "__file__", None) == str(file)


def _closure(name: str, folder: Path) -> dict[str, _Source]:
    """The module and all modules of the folder that it imports, directly or not, as they were imported; its own comes first."""
    modules = {name: _SOURCES[name]}
    waiting = [name]
    while waiting:
        this = waiting.pop()
        for other in _imported_by(this, modules[this], folder):
            if other in modules:
                continue
            # also one that only a function imports: otherwise it would be imported later, and perhaps changed by then
            module = importlib.import_module(other)
            if other in _SOURCES and _is_of(module, _SOURCES[other].file):
                modules[other] = _SOURCES[other]
                waiting.append(other)
    return modules


def _imported_by(name: str, source: _Source, folder: Path) -> set[str]:
    """The modules of the folder that a module names in its imports, and their packages, where these hold any code."""
    package = name.split(".") if source.file.name == "__init__.py" else name.split(".")[:-1]
    named: set[str] = set()
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            named |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
    named.add(name)
    for each in list(named):
        parts = each.split(".")
        named |= {".".join(parts[:depth]) for depth in range(1, len(parts))}
    return {each for each in named if each and not _of_python(each) and _has_code(_file_of(each, folder))}


def _has_code(file: Path | None) -> bool:
    if file is None or file.name != "__init__.py":
        return file is not None
    return any(not isinstance(node, ast.Expr) for node in ast.parse(file.read_bytes()).body)


def _version(used: dict[str, _Source]) -> str:
    if len(used) == 1:
        (only,) = used.values()
        return only.digest[:12]
    digests = "".join(f"{name} {used[name].digest}\n" for name in sorted(used))
    return hashlib.sha256(digests.encode()).hexdigest()[:12]
