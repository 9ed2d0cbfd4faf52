"""Every error a user can cause or meet, as one tree.

    TidegateError
    ├── ConfigError            a pipeline file or a setting is not valid
    ├── RequestError           what was asked for (a trigger's parameter, a command's argument) is not valid
    ├── PlatformError          the embedded platform cannot start or is not running
    ├── KafkaError
    │   ├── BrokerUnavailable      no broker answers                                   (retryable)
    │   ├── KafkaAuthFailed        the broker refuses the credentials
    │   ├── TopicNotFound          a topic of the pipeline does not exist
    │   └── WatermarksUnstable     the log's ends go up and down right now             (retryable)
    ├── StateError
    │   ├── StateUnavailable       the store of Variables does not answer              (retryable)
    │   ├── StateCorrupt           a saved value is not what was written
    │   │   └── StateMasked            Airflow's API hides a part of it that is needed
    │   ├── CursorLost             no cursor, though the sink holds this pipeline's receipts
    │   ├── RangeForgotten         a run of long ago was cleared, and nothing is known of its range any more
    │   └── CommitConflict         the cursor is not where this commit requires it
    ├── OffsetsOutOfRange      saved offsets and the log do not fit
    │   ├── OffsetsExpired         retention deleted records before they were read
    │   ├── CursorBeyondLog        the log ends before the cursor (truncation, unclean election)
    │   ├── TopicRecreated         the topic was deleted and created again
    │   ├── PartitionsDeleted      a partition or topic of the cursor is gone
    │   └── PartitionsLeftOut      the pipeline's file does not name a partition of the cursor any more
    ├── TransformError         a transform cannot be imported, or breaks its contract
    ├── SparkError
    │   ├── SparkUnavailable       the Spark server does not answer, or died           (retryable)
    │   ├── SparkAuthFailed        the Spark server refuses the credentials
    │   └── SparkJobFailed         the job ran and failed                              (retryable)
    └── SinkError
        ├── SinkUnavailable        the catalog or the storage does not answer          (retryable)
        ├── SinkFull               no space left where the table's files are
        ├── SinkMisfit             the table's schema does not fit the rows
        ├── TableLost              the table does not hold what the cursor has committed
        ├── SinkConflict           other commits changed the same data files meanwhile  (retryable)
        ├── ReceiptMissing         the load ended, but the sink holds no receipt of it (retryable)
        └── ReceiptMismatch        the receipt does not cover the range

Each error carries `fields` (what happened, to what), `fix` (what to do next, one sentence) and `retryable` (whether the
same call may succeed without anybody acting). "Failed" and "state unknown" are different: the second is retryable, since
every load replaces its range and every commit checks the cursor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar


class TidegateError(Exception):
    """Root of the tree. `str(error)` is one message: what happened, then the fix."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, fix: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.fields = fields

    def __str__(self) -> str:
        return f"{self.message}. {self.fix}" if self.fix else self.message

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: `error` (class name), `message`, `fix`, `retryable`, `fields`."""
        return {
            "error": type(self).__name__,
            "message": self.message,
            "fix": self.fix,
            "retryable": self.retryable,
            "fields": {
                name: value if isinstance(value, (int, float, bool)) else str(value) for name, value in self.fields.items()
            },
        }

    @staticmethod
    def from_dict(value: dict[str, Any]) -> TidegateError:
        """The error that `to_dict` described, of the same class; an unknown name gives a plain `TidegateError`."""
        kind = _by_name().get(str(value.get("error")), TidegateError)
        return kind(str(value.get("message", "unknown error")), fix=str(value.get("fix", "")), **dict(value.get("fields", {})))


class ConfigError(TidegateError):
    """A pipeline file or a setting is not valid."""


class RequestError(TidegateError):
    """What was asked for is not valid; nothing was changed."""


class PlatformError(TidegateError):
    """The embedded platform cannot start or is not running."""


class KafkaError(TidegateError):
    """Kafka cannot give what a plan needs."""


class BrokerUnavailable(KafkaError):
    """No broker answers in time."""

    retryable = True


class KafkaAuthFailed(KafkaError):
    """The broker refuses the connection's credentials."""


class TopicNotFound(KafkaError):
    """A topic named by the pipeline does not exist."""


class WatermarksUnstable(KafkaError):
    """The log's ends differ between two reads; a broker is recovering."""

    retryable = True


class StateError(TidegateError):
    """The saved schedule cannot be read, believed or changed."""


class StateUnavailable(StateError):
    """The store does not answer; missing and unreadable are never the same."""

    retryable = True


class StateCorrupt(StateError):
    """A saved value is not what was written (copy, version, shape)."""


class StateMasked(StateCorrupt):
    """Airflow's API hides a part of a saved value; inside Airflow it is whole."""


class CursorLost(StateError):
    """There is no cursor, but the pipeline has run before."""


class RangeForgotten(StateError):
    """A run that ran before was cleared, and neither a Variable nor the table knows its range any more."""


class CommitConflict(StateError):
    """The cursor is not where the commit requires it; nothing was changed."""


class OffsetsOutOfRange(TidegateError):
    """Saved offsets and the topic's log do not fit together."""


class OffsetsExpired(OffsetsOutOfRange):
    """Retention deleted records that were not read yet."""


class CursorBeyondLog(OffsetsOutOfRange):
    """The log ends before the cursor."""


class TopicRecreated(OffsetsOutOfRange):
    """A topic was deleted and created again: its offsets mean other records now."""


class PartitionsDeleted(OffsetsOutOfRange):
    """A partition that the cursor knows is gone."""


class PartitionsLeftOut(OffsetsOutOfRange):
    """A partition that the cursor knows is not named by the pipeline's file any more."""


class TransformError(TidegateError):
    """A transform cannot be imported, or what it returns breaks its contract."""


class SparkError(TidegateError):
    """Spark cannot run the job."""


class SparkUnavailable(SparkError):
    """The Spark server does not answer, or died with the job. Whether the job's commit landed is unknown."""

    retryable = True


class SparkAuthFailed(SparkError):
    """The Spark server refuses the connection's credentials."""


class SparkJobFailed(SparkError):
    """The job ran and failed."""

    retryable = True


class SinkError(TidegateError):
    """The table cannot take the rows, or cannot be asked."""


class SinkUnavailable(SinkError):
    """The catalog or the storage does not answer."""

    retryable = True


class SinkFull(SinkError):
    """No space is left where the table's files are."""


class SinkMisfit(SinkError):
    """The table's schema does not fit what is to be written."""


class TableLost(SinkError):
    """The table is gone, or does not hold the batches that the cursor has committed."""


class SinkConflict(SinkError):
    """Another commit changed the data files that this one replaces, between the look at them and the commit. Nothing landed."""

    retryable = True


class ReceiptMissing(SinkError):
    """The load ended, but no commit of the sink carries its receipt."""

    retryable = True


class ReceiptMismatch(SinkError):
    """The sink's receipt does not cover the range that was planned."""


def some(told: Iterable[str], most: int = 5, separator: str = ", ") -> str:
    """For a message: the first few, and how many more there are."""
    words = list(told)
    return separator.join([*words[:most], *([f"and {len(words) - most} more"] if len(words) > most else [])])


def _by_name() -> dict[str, type[TidegateError]]:
    found: dict[str, type[TidegateError]] = {}
    waiting: list[type[TidegateError]] = [TidegateError]
    while waiting:
        kind = waiting.pop()
        found[kind.__name__] = kind
        waiting.extend(kind.__subclasses__())
    return found
