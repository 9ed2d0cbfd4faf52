"""The order that a load carries out, and its answer: values that travel by file or message, never by argv.

`LoadJob` is everything one bounded Spark job needs; `LoadResult` is what it hands back. Both sides of spark-submit and of
Spark Connect use them, so the two ways of running a job cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import RequestError, StateCorrupt
from tidegate.ranges import OffsetRange, ranges_from_json, ranges_to_json
from tidegate.receipts import Observed, Receipt


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One bounded job: read `ranges`, apply `transform`, replace exactly those rows in `table`.

    `kafka_options` are Java client names with the prefix `kafka.`, as Spark's source takes them; they may hold secrets, so
    `repr` leaves them out and a file that holds them is readable by its owner only.
    `transform` is `module:function`, importable from the folder `spark_jobs`.
    `redo` asks for a write even where the sink already holds this batch's receipt (somebody cleared the task on purpose).
    """

    pipeline: str
    seq: int
    run_id: str
    ranges: tuple[OffsetRange, ...]
    transform: str
    table: str
    kafka_options: Mapping[str, str] = field(repr=False)
    redo: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; holds the secrets of `kafka_options`."""
        return {
            "pipeline": self.pipeline,
            "seq": self.seq,
            "run_id": self.run_id,
            "ranges": ranges_to_json(self.ranges),
            "transform": self.transform,
            "table": self.table,
            "kafka_options": dict(self.kafka_options),
            "redo": self.redo,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> LoadJob:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        try:
            return LoadJob(
                value["pipeline"],
                value["seq"],
                value["run_id"],
                ranges_from_json(value["ranges"]),
                value["transform"],
                value["table"],
                value["kafka_options"],
                value["redo"],
            )
        except (KeyError, ValueError, TypeError, AttributeError, RequestError) as error:
            raise StateCorrupt(
                f"a load's order cannot be read ({error!r})", fix="Clear the run's load task to write it anew"
            ) from error


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load hands back: the receipt found in the sink after the write, what the job saw, and seconds by phase.

    `landed_before` is True when nothing was written because the sink already held this batch.
    """

    receipt: Receipt
    observed: Observed
    seconds: Mapping[str, float]
    landed_before: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "receipt": self.receipt.to_json(),
            "observed": self.observed.to_json(),
            "seconds": dict(self.seconds),
            "landed_before": self.landed_before,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> LoadResult:
        """The inverse of `to_json`.

        Raises:
            StateCorrupt: the value is not what `to_json` makes.
        """
        try:
            observed = Observed(value["observed"]["records"], value["observed"]["rows"])
            return LoadResult(Receipt.from_json(value["receipt"]), observed, value["seconds"], value["landed_before"])
        except (KeyError, TypeError) as error:
            raise StateCorrupt(f"a load's answer cannot be read ({error!r})", fix="Clear the run's load task") from error
