"""The transform of the warm-up: JSON records to typed columns, as most pipelines have it."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidegate.formats.json import parse_json


def rows(records: DataFrame) -> DataFrame:
    """One row a record."""
    return parse_json(
        records.withColumnRenamed("timestamp", "_timestamp"), "id INT, name STRING, happened TIMESTAMP, amount DOUBLE"
    )
