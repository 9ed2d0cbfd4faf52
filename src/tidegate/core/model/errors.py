"""Every error a user can cause or meet, as one tree: those of a kind follow their kind.

Each error carries `fields` (the topic, table, batch … that it is about), `fix` (what to do next, in one sentence) and
`retryable` (whether the same call may succeed later without any action). "Failed" and "state unknown" are different: the second
is retryable, since every load replaces its range and every commit checks the cursor.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, ClassVar

USER_INFO = re.compile(r"(?<=://)(?:[^\s/]+|[^\s/@:]+:(?!\d+/)[^\s@]*)@")
"""The login in an address, whose password may have a slash."""
NAMED_SECRET = re.compile(
    r"""(?isx) (
        (?: passw(?:or)?d | passphrase | secret | token | credential | signature | (?:api|access|private)[._-]?key ) [\w.-]*
        (?: \s*=\s* | \\*["']\s*[:=]\s* (?=\\*["'\d]) )
    ) (?: (\\*["']) (?:(?!(?<!\\)\2).)* | [^\s&"'`]+ )"""
)
"""What is stated by a name as in a query, in options, in JAAS and in JSON, which may be in another text and so escaped."""


def masked(text: str) -> str:
    """The text without passwords and their like: those in addresses, and those that follow their name."""
    return NAMED_SECRET.sub(r"\1\2***", USER_INFO.sub("***@", text))


class TidegateError(Exception):
    """Root of the tree. `str(error)` is one message: what happened, then the fix. Neither has a login: both are `masked`."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, fix: str = "", **fields: Any) -> None:
        self.message = masked(message)
        self.fix = masked(fix)
        super().__init__(self.message)
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
                name: value if isinstance(value, (int, float, bool)) else masked(str(value))
                for name, value in self.fields.items()
            },
        }

    @staticmethod
    def from_dict(value: dict[str, Any]) -> TidegateError:
        """The inverse of `to_dict`: an error of the same class, or a plain `TidegateError` where the class is unknown."""
        kind = _by_name().get(str(value.get("error")), TidegateError)
        return kind(str(value.get("message", "unknown error")), fix=str(value.get("fix", "")), **dict(value.get("fields", {})))


class ConfigError(TidegateError):
    """A pipeline file or a setting is not valid."""


class RequestError(TidegateError):
    """A parameter of a trigger, or an argument of a command, is not valid; nothing was changed."""


class PlatformError(TidegateError):
    """The embedded platform cannot start or is not running."""


class KafkaError(TidegateError):
    """Kafka cannot provide what a plan needs."""


class BrokerUnavailable(KafkaError):
    """No broker answers in time."""

    retryable = True


class KafkaAuthFailed(KafkaError):
    """The broker refuses the connection's credentials, or does not allow them an operation; the message says which."""


class TopicNotFound(KafkaError):
    """A topic named by the pipeline does not exist."""


class WatermarksUnstable(KafkaError):
    """Two reads of the log's ends contradict each other, as while a broker recovers."""

    retryable = True


class StateError(TidegateError):
    """Saved state cannot be read, trusted or changed."""


class StateUnavailable(StateError):
    """The store does not answer; a value that cannot be read is never taken for a missing one."""

    retryable = True


class StateCorrupt(StateError):
    """A saved value is not what was written: its copy, version or fields are wrong."""


class StateMasked(StateCorrupt):
    """Airflow's API masks a part of a saved value; inside Airflow the value is complete."""


class StateNewer(StateError):
    """A newer version of Tidegate has written it, and this one must neither guess what it means nor replace it."""


class StateShadowed(StateError):
    """A secrets backend, or the environment, answers in the place of a Variable: what is written is not what is read."""


class CursorLost(StateError):
    """There is no cursor, although the pipeline has run before."""


class RangeForgotten(StateError):
    """A run was cleared whose range is neither in a Variable nor in the table's snapshots any more."""


class CommitConflict(StateError):
    """The cursor is not at the position that the commit requires; nothing was changed."""


class OffsetsOutOfRange(TidegateError):
    """Saved offsets and the topic's log contradict each other."""


class OffsetsExpired(OffsetsOutOfRange):
    """Retention deleted records before they were read."""


class LookBackExpired(OffsetsOutOfRange):
    """Retention deleted records that say which of a load's records are repeats.

    A retry asks the brokers again: it needs none from before the pipeline began that are gone by then.
    """

    retryable = True


class CursorBeyondLog(OffsetsOutOfRange):
    """The log ends before the cursor."""


class TopicRecreated(OffsetsOutOfRange):
    """A topic was deleted and created again: the same offsets are other records."""


class PartitionsDeleted(OffsetsOutOfRange):
    """A partition of the cursor no longer exists."""


class PartitionsLeftOut(OffsetsOutOfRange):
    """The pipeline's file no longer names a partition of the cursor."""


class TransformError(TidegateError):
    """A transform cannot be imported, or what it returns breaks its contract."""


class BudgetExceeded(TransformError):
    """More records of a load are rejected than `quarantine.budget` allows. Nothing was written."""


class SparkError(TidegateError):
    """Spark cannot run the job."""


class SparkUnavailable(SparkError):
    """The Spark server does not answer, or died with the job. Whether the job's commit landed is unknown."""

    retryable = True


class SparkAuthFailed(SparkError):
    """The Spark server refuses the connection's credentials."""


class SparkMisfit(SparkError):
    """Spark lacks what loads need: the Kafka source, Iceberg, or the catalog of the table."""


class SparkJobFailed(SparkError):
    """The job ran and failed."""

    retryable = True


class ReceiverError(TidegateError):
    """A receiver cannot take in, or cannot land, what a source has."""


class SourceUnavailable(ReceiverError):
    """The source cannot be opened, or is lost: a port is occupied, a connection is refused, a file is missing."""

    retryable = True


class RecordRefused(ReceiverError):
    """A record that was received can never be landed: it is too long, or incomplete."""


class NotDelivered(ReceiverError):
    """The broker has not acknowledged records. Whether it has them is unknown."""

    retryable = True


class Overloaded(ReceiverError):
    """There is no room, or no rate, for what a sender wants to store now. Nothing of it was stored."""

    retryable = True


class SinkError(TidegateError):
    """The table cannot take the rows, or cannot be read."""


class SinkUnavailable(SinkError):
    """The catalog or the storage does not answer."""

    retryable = True


class SinkFull(SinkError):
    """No space is left in the storage of the table."""


class SinkMisfit(SinkError):
    """The table cannot take the rows: its schema or identity is another, or it belongs to another pipeline."""


class TableLost(SinkError):
    """The table does not exist, or does not hold the batches that the cursor has committed."""


class SinkConflict(SinkError):
    """Other commits changed what the load looked at: rows that it replaces or, if it adds rows only, any. It wrote nothing."""

    retryable = True


class ReceiptMissing(SinkError):
    """The load ended, but no commit of the sink carries its receipt."""

    retryable = True


class ReceiptMismatch(SinkError):
    """The sink's receipt does not cover the range that was planned."""


def some(items: Iterable[str], most: int = 5, separator: str = ", ") -> str:
    """For a message: the first few items, and how many more there are."""
    words = list(items)
    return separator.join([*words[:most], *([f"and {len(words) - most} more"] if len(words) > most else [])])


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """For the end of a message on an unknown name: the closest known one; nothing where none is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _by_name() -> dict[str, type[TidegateError]]:
    kinds: dict[str, type[TidegateError]] = {}
    to_visit: list[type[TidegateError]] = [TidegateError]
    while to_visit:
        kind = to_visit.pop()
        kinds[kind.__name__] = kind
        to_visit.extend(kind.__subclasses__())
    return kinds
