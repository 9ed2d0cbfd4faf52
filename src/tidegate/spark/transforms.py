"""A pipeline's transform: a plain `DataFrame -> DataFrame` function, found by the name in the YAML.

Which code made a batch is part of its receipt, so a transform has a version: `__version__` of its module where it has one, else
the hash of the module's source. Modules it imports are not part of the hash: declare `__version__` where they matter.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from tidegate.errors import SparkJobFailed, TransformError
from tidegate.spark.errors import translate

_NAME = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)")


@dataclass(frozen=True)
class Transform:
    """A transform and what identifies it: `name` as in the YAML, `version` of its code."""

    name: str
    version: str
    function: Callable[[DataFrame], object]

    @property
    def identity(self) -> str:
        """`name@version`, as it stands in a receipt."""
        return f"{self.name}@{self.version}"

    def __call__(self, records: DataFrame) -> DataFrame:
        """The rows it makes; nothing is read.

        Raises:
            TransformError: it raises, or returns no DataFrame.
            SparkUnavailable: the server died while it asked for a schema.
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

    def broken(self, error: Exception) -> Exception:
        """What an exception met while its plan was made or analysed means."""
        known = translate(error, transform=self.name)
        if not isinstance(known, SparkJobFailed):
            return known
        said = next((line for line in str(error).splitlines() if line.strip()), "no message")
        return TransformError(
            f"transform {self.name} fails: {type(error).__name__}: {said[:500]}",
            fix="Correct the transform; the saved range stays and is loaded by the next run",
            transform=self.name,
        )


def find_transform(name: str, spark_jobs: Path) -> Transform:
    """The transform `module:function`, imported from the folder `spark_jobs`, which stays on `sys.path`.

    A module is imported once in a process: a process that outlives an edit keeps the old code and the old version.

    Raises:
        TransformError: the name is not `module:function`, or there is no such module or function.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise TransformError(
            f"a transform is named module:function, not {name!r}",
            fix='Write it like "transforms.flights:flights"',
            transform=name,
        )
    module = _import(match["module"], spark_jobs.resolve(), name)
    function = getattr(module, match["function"], None)
    if not callable(function):
        raise TransformError(
            f"module {match['module']} has no function {match['function']}",
            fix=f"Define it in {module.__file__}, or correct the pipeline's transform",
            transform=name,
        )
    # Python UDFs of a transform travel to Spark's workers as code: this folder is not on their path.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return Transform(name, _version(module), function)


def _import(module: str, folder: Path, name: str) -> ModuleType:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    _forget_others(module, folder)
    try:
        return importlib.import_module(module)
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}.")
        if absent:
            path = folder / Path(*module.split(".")).with_suffix(".py")
            raise TransformError(
                f"transform {name}: there is no module {module} in {folder}",
                fix=f"Create {path}, or correct the pipeline's transform",
                transform=name,
            ) from error
        raise TransformError(
            f"transform {name}: importing {module} fails: {type(error).__name__}: {error}",
            fix="Correct the module, or install what it imports where Spark's driver runs",
            transform=name,
        ) from error


def _forget_others(module: str, folder: Path) -> None:
    """Drop a package of the same name that was imported from another folder."""
    package = module.partition(".")[0]
    known = sys.modules.get(package)
    places = [*getattr(known, "__path__", ()), getattr(known, "__file__", None) or ""] if known else []
    if known is not None and not any(place.startswith(str(folder)) for place in places):
        for loaded in [m for m in sys.modules if m == package or m.startswith(f"{package}.")]:
            del sys.modules[loaded]
        # Ours is found first from now on.
        sys.path.remove(str(folder))
        sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


def _version(module: ModuleType) -> str:
    declared = getattr(module, "__version__", None)
    if declared is not None:
        return str(declared)
    return hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()[:12]
