"""A pipeline's transform: a plain `DataFrame -> DataFrame` function, found by the name in the YAML.

Which code made a batch is part of its receipt, so a transform has a version: `__version__` of its module where it has one, else
the hash of the source that runs (`tidegate.spark.transforms`).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from tidegate.core.model.errors import TransformError
from tidegate.sinks.failures import reason
from tidegate.spark.errors import known
from tidegate.spark.transforms import import_module

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

    Raises:
        TransformError: the name is not `module:function`, there is no such module or function in the folder, the module only
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
    for follow_wrapped in (
        False,
        True,
    ):  # a wrapper in C (`functools.cache`) has the signature of what it wraps
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
