"""Settings that keep a Kafka connection's credentials out of Spark's UI, its event log and its error texts.

Where they could appear, as observed in Spark 4.1:
- Plans and the SQL tab name the source as `BatchScan KafkaTable` and the class of its scan: no option is in them.
- A Spark Connect server keeps the text of each request, as the job's description, in its UI and in the event log, with the
  options of sources. It cuts deep requests short, so a load's own write shows none, but a count of records does show them. It
  redacts that text by the session's `spark.sql.redaction.string.regex`, which is empty unless somebody sets it.
- What Spark prints by name (settings in the environment tab, options) it redacts by `spark.redaction.regex`, which by default
  knows passwords, secrets and tokens, but no JAAS and no PEM key.

`connect` sets the pattern in its own session and `load_range.py` in its own driver, so neither needs the server's or the
cluster's settings. `REDACTION` is for the `spark-defaults.conf` of a server that others use too.
"""

from __future__ import annotations

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
