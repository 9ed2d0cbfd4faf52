"""Flights out of New York in 2013, as JSON records, to typed columns."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidegate import parse_json

FLIGHT = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT,
    arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT,
    hour INT, minute INT, time_hour TIMESTAMP
"""


def flights(records: DataFrame) -> DataFrame:
    """One row a record: its fields, its event time, and the `_kafka_…` columns that say where it came from."""
    return parse_json(records.withColumnRenamed("timestamp", "_timestamp"), FLIGHT)
