"""Whether Spark's Python workers decode the records of a load (`tidegate.formats.json.decoding`), or its own parser does.

Both make the same rows. The workers parse twice as fast, and take some time to start; on some clusters they cannot decode.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

log = logging.getLogger(__name__)

MANY = 100_000
"""Records of a load from which on the workers are asked."""

_expected: ContextVar[int] = ContextVar("_expected", default=0)
_able: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()


@contextmanager
def expecting(records: int) -> Iterator[None]:
    """Inside, a load of at most so many records is planned."""
    token = _expected.set(records)
    try:
        yield
    finally:
        _expected.reset(token)


def pay_off(spark: SparkSession) -> bool:
    """Whether the load that is planned is large, and the workers of its session have what decoding needs.

    They are asked once a session, by a job of one row. Whatever it fails for means no.
    """
    if _expected.get() < MANY:
        return False
    if spark not in _able:
        _able[spark] = _can_decode(spark)
    return _able[spark]


def _can_decode(spark: SparkSession) -> bool:
    try:
        from tidegate.formats.json.decoding import can_decode  # noqa: PLC0415 - without pyarrow it cannot be imported

        spark.range(1).select(can_decode(F.col("id"))).collect()
    except Exception as error:  # noqa: BLE001 - whatever they lack, Spark's own parser needs none of it
        named = [line.strip() for line in str(error).splitlines() if "Error" in line]
        log.info("Spark parses JSON itself, since its Python workers cannot: %s", named[-1] if named else type(error).__name__)
        return False
    return True
