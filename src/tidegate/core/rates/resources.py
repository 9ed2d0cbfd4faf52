"""How many executors, cores and pieces a planned load needs, from what its records cost.

Executors shorten what records take (b), and nothing of the overhead of a run (a). So they follow from b alone, and the overhead
only lessens the time that is left for records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from tidegate.core.model.counts import check_count
from tidegate.core.model.fields import fields_from_json, fields_to_json
from tidegate.core.rates.fit import shown

PIECES_PER_CORE = 5
"""Of a load, where there is enough work: with fewer, one core works on the last piece while the others have none left."""

LEAST_PIECE_S = 0.2
"""Seconds of work for a piece that is worth its start (Spark's tuning guide: tasks as short as 200 ms)."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a load gets of Spark.

    Args:
        executors: how many (spark-submit); None where the cores are a running server's.
        cores: of each executor, or of the server.
        pieces: Spark tasks that the load is cut into, at least; None where that is left to Spark.
        reason: what they follow from.
    """

    executors: int | None
    cores: int
    pieces: int | None
    _: KW_ONLY
    reason: str

    @property
    def total_cores(self) -> int:
        """The cores of the whole load."""
        return self.cores * (self.executors or 1)

    def __str__(self) -> str:
        """One line for people."""
        of = f"{self.cores} core{'s' if self.cores > 1 else ''}"
        if self.executors is not None:
            return f"{self.executors} executor{'s' if self.executors > 1 else ''} of {of}: {self.reason}"
        return f"{'' if self.pieces is None else f'at least {self.pieces} Spark tasks on '}{of}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return fields_to_json(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Resources:
        """The inverse of `to_json`.

        Raises:
            KeyError, TypeError: the value has another shape.
            RequestError: a number is below 1, or not whole.
        """
        read = fields_from_json(Resources, value)
        for name in ("executors", "cores", "pieces"):
            number = getattr(read, name)
            if number is not None or name == "cores":
                check_count(name, number, least=1)
        return read


def executors_for(
    records: int, core_s: float, *, records_s: float, last: int | None, least: int, most: int, cores: int
) -> Resources:
    """Executors that load the planned records in the time that a run has for them: up at once, down by one a run.

    Args:
        records: of the planned batch.
        core_s: seconds of one core for each record: b * the cores that b was measured with. Work is taken for divisible.
        records_s: what the target time leaves for records, utilization * interval - a. Where the overhead leaves nothing, the
            number stays as it is, since executors do not shorten it.
        last: of the run before; None: there was none.
        least: executors.
        most: executors.
        cores: of each.
    """
    kept = min(max(last or least, least), most)
    if records_s <= 0:
        return Resources(kept, cores, None, reason="the overhead takes the whole target time, which executors do not shorten")
    wanted = max(1, math.ceil(records * core_s / records_s / cores - 1e-9))
    work = f"{_work(records, core_s)} in {records_s:.3g} s need {wanted}"
    count, why = min(max(wanted, least), most), ""
    if count != wanted:
        why = f", the {'least' if count > wanted else 'most'} is {count}"
    if last is not None and count < kept:
        count, why = kept - 1, f", {kept} shrink by one a run"
    return Resources(count, cores, None, reason=work + why)


def pieces_for(records: int, core_s: float, *, cores: int) -> Resources:
    """Pieces of a load for a running Spark (Connect), whose cores are given: five a core, fewer if small.

    Args:
        records: of the planned batch.
        core_s: seconds of one core for each record.
        cores: of the Spark that runs the load.
    """
    worth = math.floor(records * core_s / LEAST_PIECE_S + 1e-9)
    return Resources(None, cores, min(max(1, worth), PIECES_PER_CORE * cores), reason=_work(records, core_s))


def _work(records: int, core_s: float) -> str:
    return f"{records:,} records of {shown(1e6 * core_s)} core seconds a million"
