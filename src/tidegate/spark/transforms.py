"""A pipeline's transform: a plain `DataFrame -> DataFrame` function, found by the name in the YAML.

Which code made a batch is part of its receipt, so a transform has a version: `__version__` of its module where it has one, else
the hash of the source that runs.

Rules of the import:
- A module is compiled from the source that is hashed, read once. Bytecode caches are not used: a file that was edited within a
  second, to the same length, has the same cache.
- The version covers what the import of the transform's module has loaded of the folder. So all modules of the folder are
  imported anew, but for the same module with all that it loaded, as long as every one of them is what its file holds now. A
  task's process is forked from one that may be days old.
- A module that only a function imports is imported with the module that holds the function: otherwise it would be imported
  later, and perhaps changed by then.
- A module is looked up before it is imported, and nothing outside the folder is taken for it: no installed package, no module
  of Python itself, nothing behind a symbolic link that leaves the folder.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import resolve_name, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from tidegate.core.model.errors import TransformError
from tidegate.sinks.failures import reason
from tidegate.spark.errors import known

_NAME = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Transform:
    """A transform and what identifies it: `name` as in the YAML, `version` of its code."""

    name: str
    version: str
    function: Callable[[DataFrame], object]

    @property
    def identity(self) -> str:
        """`name@version`, as receipts hold it."""
        return f"{self.name}@{self.version}"

    def __call__(self, records: DataFrame) -> DataFrame:
        """The rows it makes; nothing is read.

        Raises TransformError: it raises, or returns no DataFrame. SparkUnavailable: the server died while it asked for a
        schema.
        """
        try:
            rows = self.function(records)
        except Exception as error:
            raise self.broken(error) from error
        if not isinstance(rows, DataFrame):
            raise TransformError(
                f"transform {self.name} returns {type(rows).__name__}, not a DataFrame",
                fix="Return the transformed DataFrame",
                transform=self.name,
            )
        return rows

    def schema(self, rows: DataFrame) -> StructType:
        """The columns of the rows that it has made, which Spark analyses for this; raises as the call does."""
        try:
            return rows.schema
        except Exception as error:
            raise self.broken(error) from error

    def broken(self, error: Exception) -> Exception:
        """The error to raise for an exception while the plan of its rows is built or analysed."""
        return known(error, transform=self.name) or TransformError(
            f"transform {self.name} fails: {reason(error)}",
            fix="Correct the transform; the saved range stays and is loaded by the next run",
            transform=self.name,
        )


def find_transform(name: str, spark_jobs: Path) -> Transform:
    """The transform `module:function`, imported from the folder `spark_jobs`, which stays on `sys.path`.

    Nothing is imported but source files in that folder, and what they import. A file that has changed since this process
    imported it is imported anew, with all modules of the folder, so the version is that of the code that runs.

    Raises TransformError: the name is not `module:function`, there is no such module or function in the folder, the module only
    imports the function from elsewhere, or the function cannot be called with one argument.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise TransformError(
            f"a transform is named module:function, not {name!r}",
            fix='Write it like "transforms.flights:flights"',
            transform=name,
        )
    folder = spark_jobs.resolve()
    try:
        module, version, names = import_module(match["module"], folder)
    except TransformError as error:
        raise TransformError(f"transform {name}: {error.message}", fix=error.fix, transform=name) from None
    except Exception as error:
        kind = type(error).__name__
        raise TransformError(
            f"transform {name}: importing {match['module']} fails: {': '.join(filter(None, [kind, str(error).rstrip('.')]))}",
            fix="Install what it imports where Spark's driver runs" if isinstance(error, ImportError) else "Correct the module",
            transform=name,
        ) from error
    function = getattr(module, match["function"], None)
    if not callable(function):
        raise TransformError(
            f"module {match['module']} has no function {match['function']}",
            fix=f"Define it in {module.__file__}, or correct the pipeline's transform",
            transform=name,
        )
    if _defined_in(function) not in names:
        raise TransformError(
            f"transform {name} is defined in {_defined_in(function)}, which is not a module in {folder}",
            fix=f"Define the function in {module.__file__}",
            transform=name,
        )
    parameters = _parameters(function)
    if parameters is not None and not _takes_records(parameters):
        raise TransformError(
            f"transform {name} cannot be called with the records alone: its parameters are {parameters}",
            fix="Give it one parameter, the DataFrame of the records, and a default to every other",
            transform=name,
        )
    for each in names:
        # Python UDFs of a transform are sent to Spark's workers as code: this folder is not on their path.
        cloudpickle.register_pickle_by_value(sys.modules[each])  # type: ignore[no-untyped-call]
    declared = getattr(module, "__version__", None)
    return Transform(name, version if declared is None else str(declared), function)


def _parameters(function: Callable[..., object]) -> inspect.Signature | None:
    """The parameters of the function as it is called, decorators included; None where it has no signature."""
    for follow_wrapped in (False, True):  # a wrapper in C (`functools.cache`) has the signature of what it wraps
        with suppress(TypeError, ValueError):
            return inspect.signature(function, follow_wrapped=follow_wrapped)
    return None


def _takes_records(parameters: inspect.Signature) -> bool:
    try:
        parameters.bind(None)
    except TypeError:
        return False
    return True


def _defined_in(function: object) -> str | None:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__module__", None)


_LOCK = threading.RLock()


class _Finder(MetaPathFinder):
    """Finds the modules of one folder before anything else of the same name; those of Python itself excepted.

    `sources` are those of its modules that were loaded, by their names, and `covered` the modules that were loaded with `root`.
    """

    folder, root = Path(), ""
    covered: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.sources: dict[str, tuple[Path, bytes]] = {}

    def file_of(self, name: str) -> Path | None:
        return None if _of_python(name) else _file_of(name, self.folder)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        del path, target
        file = self.file_of(name)
        if file is None:
            return None
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        return spec_from_file_location(name, file, loader=_Loader(name, str(file)), submodule_search_locations=inside)


_FINDER = _Finder()


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        text = self.get_data(self.path)
        _FINDER.sources[fullname] = Path(self.path), text
        return compile(text, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        for name in _imported_by(module, _FINDER.sources[module.__name__][1]):
            if _FINDER.file_of(name):
                importlib.import_module(name)


def _imported_by(module: ModuleType, text: bytes) -> Iterator[str]:
    """The names of what a module imports, wherever it does, and of what may be a module of a package."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), module.__package__ or "")
            yield from (origin, *(f"{origin}.{alias.name}" for alias in node.names))


def import_module(name: str, folder: Path) -> tuple[ModuleType, str, tuple[str, ...]]:
    """The module of a dotted name, the version of its source, and the names of all modules that the version covers.

    The version is twelve hex digits: of the module's own source where it imports nothing else of the folder; otherwise of that
    and of all it imports of the folder, directly or not, inside functions too. A package that holds nothing but a docstring
    does not count. The folder is a resolved path.

    Raises TransformError: there is no such module in the folder, or it may not be used. Exception: whatever the module raises.
    """
    _look_up(name, folder)
    with _LOCK:
        if (_FINDER.root, _FINDER.folder) != (name, folder) or not all(map(_is_current, _FINDER.sources)):
            _import_anew(name, folder)
        used = {each: _FINDER.sources[each][1] for each in _FINDER.covered if _has_code(*_FINDER.sources[each])}
        return sys.modules[name], _version(used), tuple(used)


def _look_up(name: str, folder: Path) -> None:
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
    # also of each package that it is in, whose `__init__.py` is run before it
    for each in (file, *(above / "__init__.py" for above in file.parents if folder in above.parents)):
        if not each.resolve().is_relative_to(folder):
            raise TransformError(
                f"{each} is a link to {each.resolve()}, outside of {folder}",
                fix="Put the module itself into the folder of transforms",
            )


def _of_python(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def _file_of(name: str, folder: Path) -> Path | None:
    place = folder.joinpath(*name.split("."))
    return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()), None)


def _is_current(name: str) -> bool:
    """Whether a module is still the one that was loaded, and its file holds what it was loaded from."""
    file, text = _FINDER.sources[name]
    return name in sys.modules and file.is_file() and file.read_bytes() == text


def _import_anew(name: str, folder: Path) -> None:
    """Import the module, and all that it imports of the folder; the folder stays first on the path."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    package = name.partition(".")[0]
    for loaded, module in list(sys.modules.items()):
        # or a package of the same name, from another folder
        if _is_under(module, folder) or loaded.partition(".")[0] == package:
            del sys.modules[loaded]
    importlib.invalidate_caches()
    _FINDER.folder, _FINDER.root, _FINDER.sources = folder, "", {}
    importlib.import_module(name)
    _FINDER.root, _FINDER.covered = name, tuple(sorted(_FINDER.sources))


def _is_under(module: ModuleType, folder: Path) -> bool:
    # not by getattr: some modules import others when an attribute is read
    known = getattr(module, "__dict__", {})
    places = [known["__file__"]] if known.get("__file__") else list(known.get("__path__", ()))
    return bool(places) and all(str(place).startswith(f"{folder}{os.sep}") for place in places)


def _has_code(file: Path, text: bytes) -> bool:
    return file.name != "__init__.py" or any(not isinstance(node, ast.Expr) for node in ast.parse(text).body)


def _version(used: dict[str, bytes]) -> str:
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in used.items()}
    if len(digests) == 1:
        return next(iter(digests.values()))[:12]
    return hashlib.sha256("".join(f"{name} {digest}\n" for name, digest in digests.items()).encode()).hexdigest()[:12]
