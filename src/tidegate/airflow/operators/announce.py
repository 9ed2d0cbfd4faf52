"""The hours that a task announces as partition events (`tidegate.core.announce`), with what has to be asked for them.

Airflow writes the events of a task when it succeeds, and a task that is tried again announces the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from airflow.sdk import Asset

from tidegate.airflow.operators.shared import brokers_of, now_ms
from tidegate.core.announce.asking import read_until, times_by_ends
from tidegate.core.announce.hours import Announcement, Span, Times, announcement, end_of, look_back, next_span
from tidegate.core.config.pipeline import Announce, Pipeline
from tidegate.core.errors import TidegateError
from tidegate.core.load.receipt import Observed
from tidegate.core.offsets.ranges import OffsetRange
from tidegate.core.replay.chunks import SavedReplay
from tidegate.core.schedule.patience import Patience
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger
from tidegate.core.state.saved_range import SavedRange


def hours_outlets(pipeline: Pipeline) -> list[Asset]:
    """The asset of a pipeline's hours, as an outlet; none where its file does not announce them."""
    return [Asset(name=pipeline.hours_asset)] if pipeline.announce else []


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
    """What one task announces.

    Args:
        pipeline: whose task it is.
        announce: what its file asks for.
        patience: of the task.
        log: of the task.
    """

    def __init__(self, pipeline: Pipeline, announce: Announce, patience: Patience, log: Any) -> None:
        self._pipeline, self._announce, self._patience, self._log = pipeline, announce, patience, log
        self._level = pipeline.source.isolation_level

    def span(self, times: Times | None, saved: SavedRange, after: Cursor) -> Span | None:
        """The hours that are complete with a batch, as `tidegate.core.schedule.run.commit_batch` asks."""
        now, complete_ms = now_ms(), 0
        brokers, assign = partial(brokers_of, self._pipeline, "commit", self._log), self._pipeline.source.assign
        grace_ms, period_ms = self._announce.grace_ms, self._announce.period_ms
        try:
            complete_ms = read_until(saved, after, brokers, level=self._level, assign=assign, grace_ms=grace_ms, now_ms=now)
        except TidegateError as error:  # the next batch announces what this one does not
            self._log.warning("no hour is announced as complete with this batch: %s", error)
        first_ms = times.first_ms if times else None
        return next_span(after.announced, first_ms, complete_ms, now_ms=now, period_ms=period_ms)

    def of_batch(self, saved: SavedRange, cursor: Cursor, times: Times | None) -> Announcement:
        """What a commit announces once the cursor has moved. One that is tried again announces the same."""
        span = cursor.announced
        if span is not None and cursor.seq != saved.load.seq:  # an older batch that was loaded again: only what it changed
            span = (end_of(span, now_ms()),) * 2
        return self._said(span, times)

    def of_replay(
        self, saved: SavedReplay, cursor: Cursor, observed: Mapping[int, Observed], resumed: Iterable[OffsetRange] = ()
    ) -> Announcement:
        """What a replay announces: the announced hours that its records are of; the others are left to the schedule.

        Args:
            saved: the replay.
            cursor: of the schedule.
            observed: what its loads saw, by chunk.
            resumed: what those replays have landed that it goes on with; they have announced nothing.
        """
        if cursor.announced is None:
            return Announcement()
        known = {number: o.times for number, o in observed.items() if o.times}
        lost = [*resumed, *(r for number, chunk in enumerate(saved.chunks) if number not in known for r in chunk)]
        all_of = [*known.values(), *([t] if lost and (t := self.times_by_ends(lost)) else [])]
        return self._said((end_of(cursor.announced, now_ms()),) * 2, Times.joined(all_of))

    def times_by_ends(self, ranges: Iterable[OffsetRange]) -> Times | None:
        """The times of a load that did not say them: it had landed before, or its answer was lost."""
        self._log.warning(
            "a load did not say which hours its records are of: all hours from the first to the last record of each range count"
        )
        now = now_ms()
        try:
            return self._patience.through(
                lambda: times_by_ends(
                    ranges,
                    brokers_of(self._pipeline, "commit", self._log),
                    level=self._level,
                    window=(look_back(now), now),
                )
            )
        except TidegateError as error:
            self._log.warning("the hours that this load changed are not known, and not announced: %s", error)
            return None

    def _said(self, span: Span | None, times: Times | None) -> Announcement:
        said = announcement(span, times, period_ms=self._announce.period_ms)
        (self._log.warning if said.left else self._log.info)("hours announced: %s", said)
        return said
