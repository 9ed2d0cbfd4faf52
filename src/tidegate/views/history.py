"""What a pipeline's batches read and took over time, how far behind each found it, and what its policy allows next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from tidegate.core.model.errors import ConfigError, RequestError
from tidegate.core.model.ranges import total_count
from tidegate.core.rates.advice import Advice
from tidegate.core.rates.control import RateControl
from tidegate.core.rates.cost import RECENT_BATCHES, fit_cost, shown
from tidegate.core.rates.policy import MOST_RATE
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.saved_range import SavedRange

LIMIT, POLICY = "limits.max_records", "the rate policy"


@dataclass(frozen=True, slots=True)
class Point:
    """One batch, or several that were planned one after the other (`batches` of them, the last one is `seq`).

    `at_ms` is when it was planned (epoch ms), or loaded where its saved range is not kept any more. `lag` is how many offsets
    waited then, those of the batch included, and `records` how many of them it reads; `bound` is the most that the rate policy
    and `max_records` allowed. Of several batches, `lag`, `bound`, `run_s` and `load_s` are the greatest, and `records` and
    `rows` the sums. None: not known, or no bound.
    """

    at_ms: int
    seq: int
    batches: int
    _: KW_ONLY
    lag: int | None
    records: int
    bound: int | None = None
    run_s: float | None = None
    load_s: float | None = None
    rows: int | None = None

    @staticmethod
    def of(saved: SavedRange) -> Point:
        """What is kept of a saved range: a range never changes, and one of thousands of partitions is large."""
        offsets = total_count(saved.load.ranges)
        applied = saved.why.rate.records if saved.why.rate is not None and saved.why.rate.applied else None
        bound = _least(applied, saved.why.limits.get("max_records"))
        return Point(saved.planned_at_ms, saved.load.seq, 1, lag=offsets + saved.remaining, records=offsets, bound=bound)

    def joined(self, later: Point) -> Point:
        """This point and a later one as one."""
        return Point(
            later.at_ms,
            later.seq,
            self.batches + later.batches,
            lag=_most(self.lag, later.lag),
            records=self.records + later.records,
            bound=_most(self.bound, later.bound),
            run_s=_most(self.run_s, later.run_s),
            load_s=_most(self.load_s, later.load_s),
            rows=None if self.rows is None or later.rows is None else self.rows + later.rows,
        )


def points(planned: Iterable[Point], landed: Iterable[Point], cursor: Cursor) -> list[Point]:
    """A point for each batch, in order: by its saved range, and by its first load where the range is not kept any more.

    Such a batch is no later than the next one: its first receipt may be gone, too. Saved ranges come in any order, loads by
    their receipts with the oldest commit first.
    """
    found = {each.seq: each for each in planned}
    for load in landed:
        known = found.get(load.seq, load)
        found[load.seq] = replace(known, rows=load.rows)
        if known.lag is not None and known.run_s is None:
            found[load.seq] = replace(known, rows=load.rows, run_s=max(0, load.at_ms - known.at_ms) / 1000)
    until_ms: float = math.inf
    for seq in sorted(found, reverse=True):
        if found[seq].lag is None and found[seq].at_ms > until_ms:
            found[seq] = replace(found[seq], at_ms=int(until_ms))
        until_ms = min(until_ms, found[seq].at_ms)
    _add_timings(found, cursor)
    return [point for _, point in sorted(found.items())]


def _add_timings(found: dict[int, Point], cursor: Cursor) -> None:
    """The timings know no batch, but when it ended; the last one belongs to the cursor's batch where there is one."""
    starts = sorted((point.at_ms, seq) for seq, point in found.items() if seq <= cursor.seq)
    at = 0
    for timing in cursor.pace.timings:
        while at < len(starts) and starts[at][0] <= timing.ended_at_ms:
            at += 1
        if at:
            seq = starts[at - 1][1]
            found[seq] = replace(found[seq], run_s=timing.run_ms / 1000, load_s=timing.load_ms / 1000)


def sampled(batches: Sequence[Point], *, from_ms: int, until_ms: int, buckets: int) -> tuple[Point, ...]:
    """The batches of a span of time in at most `buckets` points, in order; each batch is in one of them.

    The span is half-open (epoch ms), and not empty.
    """
    found: dict[int, Point] = {}
    for point in batches:
        if from_ms <= point.at_ms < until_ms:
            bucket = (point.at_ms - from_ms) * buckets // (until_ms - from_ms)
            known = found.get(bucket)
            found[bucket] = point if known is None else known.joined(point)
    return tuple(point for _, point in sorted(found.items()))


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What is to be expected, as far as it is known.

    Attributes:
        next_bound: the most records that the rate policy and `max_records` allow the next batch.
        bound_by: which of the two.
        interval_s: seconds between two runs.
        arrival_per_s: records/s that arrive.
        drain_s: seconds until what waits is loaded; None also where it grows.
        verdict: whether the pipeline keeps up, in a sentence.
    """

    next_bound: int | None = None
    bound_by: str | None = None
    interval_s: float | None = None
    arrival_per_s: float | None = None
    drain_s: float | None = None
    verdict: str | None = None


def forecast(
    cursor: Cursor,
    batches: Sequence[Point],
    *,
    interval_s: float | None,
    lag: int | None,
    max_records: int | None = None,
    catch_up: bool = False,
) -> Forecast:
    """What is to be expected of the next batches.

    `interval_s` is None where runs start when there is something to read; `lag`, what waits now, where it is not known;
    `max_records`, the pipeline's limit of a run, where it has none. `catch_up`: a run that leaves something behind starts the
    next one, so runs lie closer than the interval, and nothing is said of it.
    """
    bound, arrival = _least(_next_bound(cursor), max_records), _arrival(batches[-RECENT_BATCHES:])
    by = None if bound is None else LIMIT if bound == max_records else POLICY
    known = Forecast(next_bound=bound, bound_by=by, interval_s=interval_s, arrival_per_s=arrival)
    if catch_up:
        return known
    try:
        fit = fit_cost(cursor.pace.timings[-RECENT_BATCHES:])
    except RequestError:  # none of them had records
        return known
    if interval_s is None or arrival is None:
        return known
    advice = Advice(fit.a, fit.b, interval_s=interval_s, arrival_rate=arrival, backlog=lag or 0)
    verdict = advice.verdict
    tight = [each for each in (max_records, bound) if each is not None and each < arrival * interval_s]
    if tight and (tight[0] == max_records or advice.holds):
        by, fix = (LIMIT, ". Raise it, or shorten the interval") if tight[0] == max_records else (POLICY, "")
        verdict = (
            f"the pipeline falls behind: {shown(arrival)} records/s arrive, and {by} lets a run every {interval_s:g} s load "
            f"{shown(tight[0] / interval_s)} of them{fix}"
        )
    if lag is None:
        return replace(known, verdict=verdict)
    most = max(1, advice.full_batch if bound is None else bound)
    return replace(known, verdict=verdict, drain_s=advice.drain_s(most))


def _next_bound(cursor: Cursor) -> int | None:
    """What the policy allows the next batch, by the settings that its state was learned under."""
    stated = cursor.pace.rate_state.get("settings")
    if not isinstance(stated, Mapping):
        return None
    settings = {name: value for name, value in stated.items() if name != "interval_s"}
    try:
        bound = RateControl(settings, stated["interval_s"]).bound(cursor.pace.rate_state)
    except (ConfigError, LookupError, TypeError):  # of another version
        return None
    return None if bound is None else bound.records


def _arrival(batches: Sequence[Point]) -> float | None:
    """Records/s that arrived between the plans of the first and the last batch; None where that is not known."""
    known = [point for point in batches if point.lag is not None]
    if len(known) < 2:  # a span has two ends
        return None
    first, last = known[0], known[-1]
    passed_s = (last.at_ms - first.at_ms) / 1000
    if passed_s <= 0:
        return None
    read = sum(point.records for point in known[:-1])
    return min(MOST_RATE, max(0.0, ((last.lag or 0) - (first.lag or 0) + read) / passed_s))


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _most(one: float | None, other: float | None) -> Any:
    return max((each for each in (one, other) if each is not None), default=None)
