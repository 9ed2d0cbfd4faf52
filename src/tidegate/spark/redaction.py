"""What keeps a Kafka connection's credentials out of Spark's UI, its event log and its error texts.

Where they could show, found by looking (Spark 4.1):
- Plans and the SQL tab name the source as `KafkaRelation(strategy=…, start=…, end=…)`: no option is in them.
- A Spark Connect server keeps the text of each request, with every option of every source, as the job's description, in its
  UI and in the event log. It redacts that text by `spark.sql.redaction.string.regex`, which is empty unless somebody sets it.
- Whatever prints options or settings by name (`EXPLAIN` of other sources, the environment tab, the event log's first
  lines) redacts by `spark.redaction.regex`, which by default knows passwords, secrets and tokens, but no JAAS and no PEM key.

`connect` and `load_range.py` apply these settings to their own sessions; a server's `spark-defaults.conf` may hold them too.
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


def with_ours(theirs: str | None) -> str:
    """The pattern of a session that redacts what a server's own pattern does, and options of Kafka connections."""
    if not theirs or OPTION_IN_TEXT in theirs:
        return theirs or OPTION_IN_TEXT
    return f"(?:{theirs})|(?:{OPTION_IN_TEXT})"
