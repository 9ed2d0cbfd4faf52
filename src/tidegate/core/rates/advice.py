"""What follows from the cost t = a + b * n of a batch: intervals, sizes, the end of a backlog, executors and pieces.

Values in, values out. `a` is the overhead of a run in seconds (queue, plan, start of the job, commit), `b` the seconds of each
record. Executors shorten what records take (b), and nothing of the overhead of a run (a). So they follow from b alone, and the
overhead only lessens the time that is left for records.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, asdict, dataclass
from typing import Any

from tidegate.core.model.counts import check_count, check_limits
from tidegate.core.rates.cost import check_cost, shown
from tidegate.core.rates.policy import MOST_RATE, MOST_RECORDS, check_interval, check_number


def least_interval(a: float, b: float, *, arrival_rate: float, utilization: float) -> float | None:
    """The least seconds between runs at which all that arrives is loaded, T_min = a / (utilization - b * arrival rate).

    A run of the records of one interval takes a + b * arrival rate * T, which must be at most utilization * T. None: the
    records of a second take more than `utilization` of a second, so they pile up at any interval.
    """
    rest = utilization - b * arrival_rate
    return a / rest if rest > 0 else None


def full_batch(a: float, b: float, *, interval_s: float, utilization: float) -> int:
    """The records of a run that takes utilization * interval; 0 where the overhead alone takes that long."""
    return min(max(0, math.floor((utilization * interval_s - a) / b + 1e-9)), MOST_RECORDS)


@dataclass(frozen=True)
class Advice:
    """What an operator should know about the interval of a pipeline whose batches cost a + b * n seconds.

    `arrival_rate` is in records/s, `utilization` the share of the interval that a run may take, and `backlog` how many records
    wait. Raises RequestError: a, b or the backlog is out of its bounds. ConfigError: another argument is.
    """

    a: float
    b: float
    _: KW_ONLY
    interval_s: float
    arrival_rate: float
    utilization: float = 0.9
    backlog: int = 0

    def __post_init__(self) -> None:
        check_cost(a=self.a, b=self.b)
        check_interval(self.interval_s)
        check_number("arrival_rate", self.arrival_rate, most=MOST_RATE, strict=False)
        check_number("utilization", self.utilization, most=1)
        check_count("backlog", self.backlog)

    @property
    def least_interval_s(self) -> float | None:
        """At which the pipeline keeps up; None: at none."""
        return least_interval(self.a, self.b, arrival_rate=self.arrival_rate, utilization=self.utilization)

    @property
    def full_batch(self) -> int:
        """Records of a run that takes utilization * interval; 0: not even an empty one is that short."""
        return full_batch(self.a, self.b, interval_s=self.interval_s, utilization=self.utilization)

    def drain_s(self, batch: int | None = None) -> float | None:
        """Seconds until the backlog is loaded, with what arrives meanwhile; None: it does not shrink.

        Each run loads `batch` records, by default a full batch. A run that takes longer than the interval delays the next one.
        """
        batch = self.full_batch if batch is None else batch
        run_s = self.a + self.b * batch
        between_s = max(self.interval_s, run_s)
        shrinks = batch - self.arrival_rate * between_s
        if self.backlog == 0:
            return 0.0
        if shrinks <= 0:
            return None
        before = max(0, math.ceil((self.backlog - batch) / shrinks))  # runs that leave something behind
        return before * between_s + min(run_s, self.a + self.b * (self.backlog - before * shrinks))

    @property
    def holds(self) -> bool:
        """Whether all that arrives is loaded at this interval."""
        return self.least_interval_s is not None and self.least_interval_s <= self.interval_s

    @property
    def verdict(self) -> str:
        """What arrives, the most that is loaded at this interval, the interval that would do, and what to do about it."""
        arrives = f"{shown(self.arrival_rate)} records/s arrive"
        if self.least_interval_s is None:
            return (
                f"the pipeline falls behind at any interval: {arrives}, and it loads at most "
                f"{shown(self.utilization / self.b)} records/s, however large its batches. "
                "Give the job more cores, or make the transform cheaper"
            )
        most = max(0.0, self.utilization * self.interval_s - self.a) / (self.b * self.interval_s)
        loads = f"a run every {self.interval_s:g} s loads at most {shown(most)} records/s"
        least = (
            f"with an interval of {_up(self.least_interval_s):g} s or longer" if self.least_interval_s else "at any interval"
        )
        if self.holds:
            return f"the pipeline keeps up: {arrives}, and {loads}; it would keep up {least}"
        return (
            f"the pipeline falls behind: {arrives}, and {loads}, since each run has {self.a:.3g} s of overhead; "
            f"it would keep up {least}. Lengthen the interval, or give the job more cores"
        )

    def to_json(self) -> dict[str, Any]:
        """JSON-ready, with what follows."""
        return {
            **asdict(self),
            "least_interval_s": self.least_interval_s,
            "full_batch": self.full_batch,
            "drain_s": self.drain_s(),
            "holds": self.holds,
            "verdict": self.verdict,
        }


def _up(seconds: float) -> float:
    """A time above 0, rounded up to three digits, so that what is advised holds."""
    unit = 10.0 ** (math.floor(math.log10(seconds)) - 2)
    return math.ceil(seconds / unit - 1e-9) * unit


PIECES_PER_CORE = 5
"""Of a load, where there is enough work: with fewer, one core works on the last piece while the others have none left."""
LEAST_PIECE_S = 0.2
"""Seconds of work for a piece that is worth its start (Spark's tuning guide: tasks as short as 200 ms)."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a load gets of Spark. Raises RequestError: a number is below 1, or not whole.

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

    def __post_init__(self) -> None:
        check_count("cores", self.cores, least=1)
        check_limits({"executors": self.executors, "pieces": self.pieces})

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


def executors_for(
    records: int, core_s: float, *, records_s: float, last: int | None, least: int, most: int, cores: int
) -> Resources:
    """Executors that load the planned records in the time that a run has for them: up at once, down by one a run.

    `core_s` are the seconds of one core for each record: b * the cores that b was measured with. Work is taken for divisible.
    `records_s` is what the target time leaves for records, utilization * interval - a. Where the overhead leaves nothing, the
    number stays as it was in the `last` run, since executors do not shorten it. Each executor has `cores`.
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

    `core_s` are the seconds of one core for each record.
    """
    worth = math.floor(records * core_s / LEAST_PIECE_S + 1e-9)
    return Resources(None, cores, min(max(1, worth), PIECES_PER_CORE * cores), reason=_work(records, core_s))


def _work(records: int, core_s: float) -> str:
    return f"{records:,} records of {shown(1e6 * core_s)} core seconds a million"
