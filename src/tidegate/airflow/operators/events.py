"""Asset events of the last task of a run: that its table's rows have changed, and the hours that are complete or changed by it.

Hours (`tidegate.core.model.hours`) are partition events of an asset of their own (docs/adr/0024-hours.md). Airflow writes the
events of a task when it succeeds, and a task that is tried again announces the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from airflow.sdk import Asset, AssetAlias, Context

from tidegate.airflow.connections import brokers_of
from tidegate.core.audit.hours import read_until, times_by_ends
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import TidegateError
from tidegate.core.model.events import Committed, Replayed
from tidegate.core.model.hours import Announcement, Span, Times, announcement, end_of, look_back, next_span
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.planning.patience import Patience
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.receipt import Observed
from tidegate.core.state.saved_range import SavedRange
from tidegate.waiting import now_ms


def outlets_with(outlets: Iterable[Any], pipeline: Pipeline, hours: Sequence[str]) -> list[Any]:
    """A task's outlets; without the asset of hours where there is none to announce.

    An asset that is an outlet gets an event from every success of its task, with or without a partition key. Airflow looks at
    the outlets after the task's `execute`; the arrow in its UI is the serialized DAG's, and stays.
    """
    return [outlet for outlet in outlets if hours or outlet.name != pipeline.hours_asset]


def window_of(ledger: Ledger, *, replay: bool) -> Span:
    """From when until when a load looks at the hours of its records: those that were announced.

    A replay goes on beside the schedule, which may announce more meanwhile.
    """
    now = now_ms()
    if replay:
        return look_back(now), now
    announced = ledger.cursor().announced if ledger.listing().has_cursor else None
    return look_back(now), end_of(announced, now) if announced else 0


class Announcing:
    """What one task announces; nothing where the pipeline's file does not ask for it."""

    def __init__(self, pipeline: Pipeline, patience: Patience, log: Any) -> None:
        self._pipeline, self._announce, self._patience, self._log = pipeline, pipeline.announce, patience, log
        self._brokers, self._level = partial(brokers_of, pipeline, "commit", log), pipeline.source.isolation_level

    def times(self, loads: Iterable[tuple[Observed | None, Sequence[OffsetRange]]]) -> list[Times]:
        """The times of the records of some loads: as each has observed them, else by the ends of what it loaded.

        Each has what it observed, if that is known, and its ranges.
        """
        if self._announce is None:
            return []
        loads = list(loads)
        lost = [r for observed, ranges in loads if observed is None or observed.times is None for r in ranges]
        known = [observed.times for observed, _ in loads if observed and observed.times]
        return [*known, *self._by_ends(lost)] if lost else known

    def _by_ends(self, ranges: Sequence[OffsetRange]) -> list[Times]:
        """The times of loads that did not say them: they had landed before, or their answer was lost."""
        self._log.warning(
            "a load did not say which hours its records are of: all hours from the first to the last record of each range count"
        )
        window = look_back(now_ms()), now_ms()
        try:
            return [self._patience.through(lambda: times_by_ends(ranges, self._brokers(), level=self._level, window=window))]
        except TidegateError as error:
            self._log.warning("the hours that this load changed are not known, and not announced: %s", error)
            return []

    def span(self, times: Iterable[Times], saved: SavedRange, after: Cursor) -> Span | None:
        """The hours that are complete with a batch, as `tidegate.core.planning.run.commit_batch` asks."""
        if self._announce is None:
            return after.announced
        now, complete_ms = now_ms(), 0
        assign, grace_ms = self._pipeline.source.assign, self._announce.grace_ms
        try:
            complete_ms = read_until(
                saved, after, self._brokers, level=self._level, assign=assign, grace_ms=grace_ms, now_ms=now
            )
        except TidegateError as error:  # the next batch announces what this one does not
            self._log.warning("no hour is announced as complete with this batch: %s", error)
        first_ms = min((t.first_ms for t in times if t.first_ms is not None), default=None)
        return next_span(after.announced, first_ms, complete_ms, now_ms=now, period_ms=self._announce.period_ms)

    def said(self, cursor: Cursor, times: Sequence[Times], *, complete: bool) -> Announcement:
        """What is announced once a batch is committed or a replay verified. A task that is tried again announces the same.

        `complete`: this is the batch that the cursor moved past last, so that the hours are announced that are complete with
        it. Whatever else was loaded announces what it changed of those that were announced.
        """
        if self._announce is None:
            return Announcement()
        now, span = now_ms(), cursor.announced
        if span is not None and not complete:
            span = (end_of(span, now),) * 2
        said = announcement(span, times, now_ms=now, period_ms=self._announce.period_ms)
        (self._log.warning if said.left else self._log.info)("hours announced: %s", said)
        return said


def write_events(
    context: Context,
    outlets: Iterable[Any],
    table: str,
    hours_asset: str,
    event: Committed | Replayed,
    hours: Sequence[str] = (),
) -> None:
    """The events of a task's outlets, which Airflow writes when the task succeeds; again, where it is run again.

    An outlet that is an asset gets an event from every success of its task, which this fills with what happened. An outlet that
    is an alias, which stands for the asset of the table, gets one only here. The asset of hours has to be none of the outlets
    where there is no hour to announce (`outlets_with`).
    """
    accessors, extra = context["outlet_events"], event.to_json()
    for outlet in outlets:
        if isinstance(outlet, AssetAlias):
            accessors[outlet].add(Asset(name=table), extra=extra)
        else:
            accessors[outlet].extra = extra
            if outlet.name == hours_asset:
                accessors[outlet].add_partitions([*hours])
