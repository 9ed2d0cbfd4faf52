"""What a load handed on beside its receipt: seconds by phase, counts, and how long its Spark had been running."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.audit.views.range_map import Mark
from tidegate.core.counts import is_whole
from tidegate.core.load.job import COLD_S
from tidegate.core.rates.checks import is_number


@dataclass(frozen=True)
class LoadAnswer:
    """What one load took and saw; None is what is not known.

    Attributes:
        seconds: by phase.
        records: read from Kafka.
        rows: written.
        repeats: of the records, left out as repeats.
        errors: of the rows, broken records.
        spark_age_s: how long the Spark application had been running when the load began.
        landed_before: whether nothing was written, since an earlier try had landed.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    records: int | None = None
    rows: int | None = None
    repeats: int | None = None
    errors: int | None = None
    spark_age_s: float | None = None
    landed_before: bool = False

    @staticmethod
    def of(answer: object) -> LoadAnswer | None:
        """The answer that a load task handed on; None where it is none. No batch depends on what is read here."""
        if not isinstance(answer, Mapping) or not isinstance(answer.get("observed"), Mapping):
            return None
        seen, seconds = answer["observed"], answer.get("seconds")
        counts = {name: seen.get(name) for name in ("records", "rows", "repeats", "errors")}
        age = answer.get("spark_age_s")
        return LoadAnswer(
            {str(k): float(v) for k, v in seconds.items() if is_number(v)} if isinstance(seconds, Mapping) else {},
            **{name: value if is_whole(value) else None for name, value in counts.items()},
            spark_age_s=age if is_number(age) else None,
            landed_before=answer.get("landed_before") is True,
        )

    @property
    def marks(self) -> frozenset[Mark]:
        """What of it is worth seeing in a range map."""
        marks: set[Mark] = set()
        if self.errors:
            marks.add("errors")
        if self.spark_age_s is not None and self.spark_age_s < COLD_S:
            marks.add("cold")
        return frozenset(marks)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**vars(self), "seconds": dict(self.seconds)}
