"""A reader beside the schedule, which follows a table by its appends, as docs/follow.md says of PyIceberg."""

from __future__ import annotations

import contextlib
from array import array
from collections import defaultdict
from threading import Event, Thread

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table.snapshots import ancestors_of

from tidegate.core.audit.oracle import Verdict, judge
from tidegate.core.model.columns import ORIGIN_COLUMNS
from tidegate.core.model.errors import SinkUnavailable
from tidegate.core.model.ranges import TopicPartition
from tidegate.sinks.iceberg.catalog import load_table
from tidegate.sinks.iceberg.history import read_origins

EVERY_S = 1.0


class Follower:
    """Reads in a thread of its own what each append has added, from `start` to `judge`.

    Where the table is another one, was rolled back, or has no snapshot any more that was read, it begins again, as such readers
    have to.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self.again = 0
        self._at: tuple[object, int] | None = None
        self._seen: dict[TopicPartition, array[int]] = defaultdict(lambda: array("q"))
        self._ended = Event()
        self._thread = Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def judge(self) -> Verdict:
        """What was read against what the table holds, to which nothing is added any more.

        It holds where each row was read once. One that began again has not read the rows that were no append since.
        """
        self._ended.set()
        self._thread.join()
        self._look()
        rows = read_origins(self.table)
        if self.again:
            rows = {tp: array("q", {*rows.get(tp, ())} & {*seen}) for tp, seen in self._seen.items()}
        return judge(rows, self._seen)

    def _follow(self) -> None:
        while not self._ended.wait(EVERY_S):
            # a catalog that is away, and files that somebody has just expired
            with contextlib.suppress(SinkUnavailable, OSError, ValueError, NoSuchTableError):
                self._look()

    def _look(self) -> None:
        table = load_table(self.table)
        head = None if table is None else table.current_snapshot()
        if table is None or head is None:
            return
        there = {snapshot.snapshot_id for snapshot in ancestors_of(head, table.metadata)}
        if self._at is not None and (self._at[0] != table.metadata.table_uuid or self._at[1] not in there):
            self.again, self._at = self.again + 1, None
            self._seen.clear()
        since = None if self._at is None else self._at[1]
        if since == head.snapshot_id:
            return
        added = table.incremental_append_scan(
            from_snapshot_id_exclusive=since, to_snapshot_id_inclusive=head.snapshot_id, selected_fields=ORIGIN_COLUMNS
        ).to_arrow()
        for topic, partition, offset in zip(*(added[name].to_pylist() for name in ORIGIN_COLUMNS), strict=True):
            self._seen[TopicPartition(topic, partition)].append(offset)
        self._at = table.metadata.table_uuid, head.snapshot_id
