"""Names, in the error of a load, the first record that breaks it: one that a cast, a UDF or a column of the table refuses.

The rows are made again of parts of the batch, and thrown away (`tidegate.core.load.culprit`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pyspark.errors import AnalysisException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StringType, StructType

from tidegate.core.load.culprit import Part, narrowed
from tidegate.core.model.errors import TidegateError
from tidegate.core.model.ranges import OffsetRange, total_count
from tidegate.spark.errors import FAILED, NO_VALUE, known

LONGEST_S = 60.0
"""How long a record is looked for; what is known by then is named."""
BAD_UUID = re.compile(r"Invalid UUID string: (\S*)")
"""As Iceberg's writer fails of a text. Spark takes the column for one of texts: which it is, only the text tells."""
UUID = "^[0-9a-fA-F]+(-[0-9a-fA-F]+){4}$"
"""What Java reads as a UUID."""


def with_record(
    error: TidegateError,
    ranges: tuple[OffsetRange, ...],
    rows: Callable[[Part], DataFrame],
    table: Callable[[], StructType],
    *,
    took_s: float = 0.0,
) -> TidegateError:
    """The error, with the first record that breaks the load, where one does and is found; else as it is.

    `rows` makes the rows of a part of the ranges, and `table` answers the schema that they are written to. Of a load that took
    longer (`took_s`) than the search may, no record is looked for.
    """
    if took_s > LONGEST_S / 2 or not error.message.startswith((FAILED, NO_VALUE)):
        return error
    until_s = time.monotonic() + LONGEST_S
    with suppress(Exception), _quiet():  # the error that is known says more than one of the search
        schema, bad = table(), BAD_UUID.search(error.message)
        uuids = set[str]() if bad is None else _columns_with(bad[1], rows(ranges))

        def fails(part: Part) -> bool:
            try:
                _as_stored(rows(part), schema, uuids).write.format("noop").mode("overwrite").save()
            except AnalysisException:  # of the plan, and of no record
                raise
            except Exception as failure:
                meaning = known(failure)
                if meaning is not None and not meaning.message.startswith(NO_VALUE):
                    raise
                return True
            return False

        found = narrowed(ranges, fails, lambda: time.monotonic() < until_s)
        if found is not None:
            where = f"{found[0].topic_partition} at offset {found[0].from_offset}"
            if total_count(found) > 1:
                where = f"one of {', '.join(map(str, found[:3]))}"
            return type(error)(
                f"{error.message}; the first such record is {where}", fix=error.fix, **error.fields, record=where
            )
    return error


@contextmanager
def _quiet() -> Iterator[None]:
    """Inside, pyspark does not log what it raises: the log has the first failure, and the parts fail of the same."""
    loggers = [PySparkLogger.getLogger(name) for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def _columns_with(value: str, rows: DataFrame) -> set[str]:
    """The columns of texts that hold the value."""
    names = [field.name for field in rows.schema if isinstance(field.dataType, StringType)]
    held = rows.agg(*(F.max(F.col(f"`{name}`") == value).alias(name) for name in names)).collect()[0]
    return {name for name in names if held[name]}


def _as_stored(rows: DataFrame, schema: StructType, uuids: set[str]) -> DataFrame:
    """The rows as the table takes them, which fail of what it refuses."""
    fields = {field.name: field for field in schema}
    columns = []
    for name in rows.columns:
        column = F.col(f"`{name}`")
        if (field := fields.get(name)) is not None:
            column = column.try_cast(field.dataType)  # as `fitted` does: what does not fit is rejected, or refused before
            refused = F.lit(False) if field.nullable else column.isNull()
            if name in uuids:
                refused |= ~F.coalesce(column.rlike(UUID), F.lit(True))
            column = F.when(refused, F.raise_error(F.lit(name)).cast(field.dataType)).otherwise(column)
        columns.append(column.alias(name))
    return rows.select(*columns)
