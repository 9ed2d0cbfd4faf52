"""Whether Spark's Python workers decode the records of a load, or its own parser does.

Both make the same rows. The workers parse twice as fast, and take some time to start; on some clusters they cannot decode.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pkgutil import resolve_name
from typing import Any
from weakref import WeakKeyDictionary

from pyspark import cloudpickle
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import DataType

log = logging.getLogger(__name__)

MANY = 100_000
"""Records of a load from which on the workers are asked."""

_expected: ContextVar[int] = ContextVar("_expected", default=0)
_able: WeakKeyDictionary[SparkSession, dict[str, bool]] = WeakKeyDictionary()


@contextmanager
def expecting(records: int) -> Iterator[None]:
    """Inside, a load of at most so many records is planned."""
    token = _expected.set(records)
    try:
        yield
    finally:
        _expected.reset(token)


def pay_off(spark: SparkSession, check: str) -> bool:
    """Whether the load that is planned is large, and the workers of its session have what decoding needs.

    They are asked once a session, by a job of one row. Whatever it fails for means no. `check` is the format's function of
    batches, as `module:name`, that fails in workers which lack something. It is imported here, since its module may need what
    this process lacks too.
    """
    if _expected.get() < MANY:
        return False
    able = _able.setdefault(spark, {})
    if check not in able:
        why = why_not(spark, check)
        if why is not None:
            log.info("Spark parses the records itself, since its Python workers cannot: %s", why)
        able[check] = why is None
    return able[check]


def in_workers(function: Callable[[Iterator[Any]], Iterator[Any]], returns: DataType | str) -> Callable[[Column], Column]:
    """A column function of whole Arrow batches. The workers get its module as code, so they need no Tidegate."""
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415 - only where workers decode

    cloudpickle.register_pickle_by_value(sys.modules[function.__module__])  # type: ignore[no-untyped-call]
    udf: Callable[[Column], Column] = arrow_udf(function, returns)  # type: ignore[call-overload]
    return udf


def why_not(spark: SparkSession, check: str) -> str | None:
    """Why the workers cannot decode, by what their job of one row fails for; None where they can."""
    try:
        spark.range(1).select(in_workers(resolve_name(check), "boolean")(F.col("id"))).collect()
    except Exception as error:  # noqa: BLE001 - whatever they lack, Spark's own parser needs none of it
        named = [line.strip() for line in str(error).splitlines() if "Error" in line]
        return named[-1] if named else type(error).__name__
    return None
