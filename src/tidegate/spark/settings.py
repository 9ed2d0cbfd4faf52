"""Settings of Spark's sessions and servers: redaction, compiled code that sessions share, the start of the application.

**Redaction** keeps a Kafka connection's credentials out of Spark's UI, its event log and its error texts. Where they could
appear, as observed in Spark 4.1:
- Plans and the SQL tab name the source as `BatchScan KafkaTable` and the class of its scan: no option is in them.
- A Spark Connect server keeps the text of each request, as the job's description, in its UI and in the event log, with the
  options of sources. It cuts deep requests short, so a load's own write shows none, but a count of records does show them. It
  redacts that text by the session's `spark.sql.redaction.string.regex`, which is empty unless somebody sets it.
- What Spark prints by name (settings in the environment tab, options) it redacts by `spark.redaction.regex`, which by default
  knows passwords, secrets and tokens, but no JAAS and no PEM key.

`connect` sets the pattern in its own session and `load_range.py` in its own driver, so neither needs the server's or the
cluster's settings. `REDACTION` is for the `spark-defaults.conf` of a server that others use too.

**Shared code** spares a load the compilation of all its classes. docs/adr/0021-shared-code.md has how, and what it costs.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMES = r"secret|passw|passphrase|token|credential|jaas|private|access[.]?key|keystore[.]key"

STRING_REGEX = "spark.sql.redaction.string.regex"
OPTION_IN_TEXT = rf'(?i)key: "[^"\n]*(?:{_NAMES})[^"\n]*"\s+value: "[^"\\]*+(?:\\.[^"\\]*+)*+"'
"""An option with its value, as the text of a Spark Connect request shows it; a Java regular expression."""

REDACTION = {
    "spark.redaction.regex": f"(?i){_NAMES}",
    "spark.redaction.string.regex": OPTION_IN_TEXT,  # what `spark.sql.redaction.string.regex` falls back to
}
"""Settings for whoever starts a Spark driver."""


def with_ours(theirs: str | None, ours: str) -> str:
    """A pattern that redacts what either does; `theirs` may be empty, or hold ours already."""
    if not theirs:
        return ours
    return theirs if ours in theirs else f"(?:{theirs})|(?:{ours})"


SHARED_CODE = "spark.tidegate.sharedCode"
SHARED_CODE_PROPERTIES = {SHARED_CODE: "true", "spark.files.overwrite": "true"}
"""For whoever starts a Spark Connect server whose sessions, those of other clients too, add no artifacts. All are needed."""

SHARED_CODE_SETTINGS = {
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "false",
}
"""Of a session whose clones share compiled code."""

APP_STARTED = "spark.app.startTime"
"""Spark's own setting: when the application started, by its driver's clock (epoch ms)."""

_starts: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def remember_start(session: object, started: str | None) -> None:
    """What a Spark Connect server has said of `APP_STARTED`, among other things: it need not be asked again."""
    if started is not None:
        _starts[session] = started


def age_s(spark: SparkSession) -> float | None:
    """Seconds since the session's application started, as far as the two clocks agree; None where Spark does not say."""
    with suppress(Exception):  # a mark in the pages: no load fails of it
        started = int(_starts.get(spark) or spark.conf.get(APP_STARTED) or "")
        return max(0.0, round(time.time() - started / 1000, 1))
    return None
