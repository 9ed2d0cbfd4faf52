"""How long the Spark application of a session has been running."""

from __future__ import annotations

import time
from contextlib import suppress
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

STARTED = "spark.app.startTime"
"""Spark's own setting: when the application started, by its driver's clock (epoch ms)."""

_known: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def remember(session: object, started: str | None) -> None:
    """What a Spark Connect server has said of `STARTED`, among other things: it need not be asked again."""
    if started is not None:
        _known[session] = started


def age_s(spark: SparkSession) -> float | None:
    """Seconds since the session's application started, as far as the two clocks agree; None where Spark does not say."""
    with suppress(Exception):  # a mark in the pages: no load fails of it
        started = int(_known.get(spark) or spark.conf.get(STARTED) or "")
        return max(0.0, round(time.time() - started / 1000, 1))
    return None
