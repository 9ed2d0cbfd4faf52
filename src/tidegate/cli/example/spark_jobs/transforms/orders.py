"""The transform of `pipelines/orders.yaml`."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidegate import parse_json


def orders(records: DataFrame) -> DataFrame:
    """One row for each JSON record; a record that is not valid keeps its text in `_raw` and the reason in `_error`."""
    return parse_json(records, "id BIGINT, item STRING, price DOUBLE")
