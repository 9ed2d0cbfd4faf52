"""The receipt: what a sink's own commit says of the load that made it.

A receipt travels as properties of the same commit that holds the rows, so it exists exactly when the rows do. The properties
say what was promised before the write began; the commit's own counters, which the sink's adapter reads, say what was written.
How many records the job read, and how many of its rows are broken (`Observed`), is known only after the commit; the load
hands it on beside the receipt, where it is judged before the cursor moves.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

from tidegate.core.config.pipeline import Dedupe
from tidegate.core.model.columns import ColumnChange
from tidegate.core.model.errors import RequestError, StateCorrupt
from tidegate.core.model.fields import (
    MAPPING,
    RANGES,
    Record,
    each,
    fields_from_json,
    fields_to_json,
    form,
    held,
    nested,
    optional,
)
from tidegate.core.model.hours import Times
from tidegate.core.model.ranges import OffsetRange, TopicPartition, covers, ranges_from_json, ranges_to_json
from tidegate.core.state.codec import FORMAT, refuse_newer
from tidegate.core.state.cursor import POSITION, LastCommit, Numbered, Position

PREFIX = "tidegate."
PIPELINE = f"{PREFIX}pipeline"
"""The property of a commit that names its pipeline."""
BATCH_PROPERTY = f"{PREFIX}batch"
"""The property that says which batch's rows a commit replaced, where rows are known by their batch."""
BESIDE = f"{PREFIX}beside"
"""The property that holds what the ranges of a batch do not say of where the cursor is after it."""

FORMAT_PROPERTY = f"{PREFIX}format"
"""The property that says in which format the others are; without it, they are as the first version wrote them."""
ATTEMPT = f"{PREFIX}attempt"
"""The property by which a write finds its own commit."""
COLUMNS = f"{PREFIX}columns"
"""The property that says what a load changed of the table's columns, where it changed any."""
QUARANTINED = f"{PREFIX}quarantined"
"""The property that says how many records a load has set aside in quarantine, where its pipeline has one."""
DEDUPE = f"{PREFIX}dedupe"
"""The property that says what a load took for a repeat, where it left any out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Numbered):
    """What one load is of: a batch of the schedule, or a chunk of a replay.

    Where `replay` names the replay that the load is a chunk of, `seq` is the number of the chunk, and no batch of the schedule
    is loaded. `topic_ids` are those that were planned. `batch` is the number of the batch whose rows are replaced, where rows
    are known by their batch and not by their origin. `beside` is what the ranges do not say of where the cursor is after the
    batch; None in a replay. `dedupe` says which records are left out as repeats; None: each record is loaded.
    """

    run_id: str
    ranges: tuple[OffsetRange, ...] = field(metadata=RANGES)
    topic_ids: Mapping[str, str] = field(default_factory=dict, metadata=MAPPING)
    replay: str | None = None
    batch: int | None = None
    beside: Position | None = field(default=None, metadata=optional(POSITION))
    dedupe: Dedupe | None = field(default=None, metadata=optional(nested(Dedupe)))

    @property
    def after(self) -> Position | None:
        """Where the cursor is once this batch is committed; None for a chunk of a replay."""
        return None if self.beside is None else self.beside.over(self.ranges, self.topic_ids)

    @property
    def named(self) -> str:
        """Which load it is, in words."""
        return f"batch {self.seq}" if self.replay is None else f"chunk {self.seq} of replay {self.replay}"

    @property
    def task(self) -> dict[str, str]:
        """What every attempt at this batch, or at this chunk of a replay, has in common, as keys and values of a commit."""
        return task_properties(self.pipeline, self.seq, self.replay)

    @property
    def nonempty(self) -> tuple[OffsetRange, ...]:
        """The ranges that hold records."""
        return tuple(r for r in self.ranges if r.count)


@dataclass(frozen=True, slots=True)
class Write:
    """What one write of a load promises to its sink: the load, by this version of the transform.

    `attempt` is unique for each write, so that a commit whose answer was lost can be told from an older one of the same load.
    `columns` are the changes of the table's columns that the load needed. `quarantined` is how many of its records are in
    quarantine, under the same attempt; None where the pipeline has none.
    """

    load: Load = field(metadata=held(Load))
    transform: str
    attempt: str
    columns: tuple[ColumnChange, ...] = field(default=(), metadata=each(form(list, lambda change: ColumnChange(*change))))
    quarantined: int | None = None

    @property
    def version(self) -> str:
        """What the rows follow from, beside the records: the transform, and what was left out."""
        dedupe = self.load.dedupe
        left_out = "" if dedupe is None else f", dedupe {dedupe.key} within {dedupe.window}"
        return f"{self.transform}{left_out}"

    def to_properties(self) -> dict[str, str]:
        """Key-value strings to be stored in the sink's commit, each key under `tidegate.`."""
        load = self.load
        return {
            **load.task,
            FORMAT_PROPERTY: str(FORMAT),
            f"{PREFIX}run-id": load.run_id,
            f"{PREFIX}ranges": _dumps(ranges_to_json(load.ranges)),
            f"{PREFIX}transform": self.transform,
            ATTEMPT: self.attempt,
            f"{PREFIX}topic-ids": _dumps(dict(load.topic_ids)),
            f"{PREFIX}generation": str(load.generation),
            **({} if load.batch is None else {BATCH_PROPERTY: str(load.batch)}),
            **({} if load.beside is None else {BESIDE: _dumps(fields_to_json(load.beside))}),
            **({} if load.dedupe is None else {DEDUPE: _dumps(fields_to_json(load.dedupe))}),
            **({COLUMNS: _dumps(self.columns)} if self.columns else {}),
            **({} if self.quarantined is None else {QUARANTINED: str(self.quarantined)}),
        }


def _dumps(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def task_properties(pipeline: str, seq: int, replay: str | None = None) -> dict[str, str]:
    """The properties by which a sink finds the commits of a batch, or of chunk `seq` of a replay."""
    if replay is None:
        return {PIPELINE: pipeline, f"{PREFIX}seq": str(seq)}
    return {PIPELINE: pipeline, f"{PREFIX}replay": replay, f"{PREFIX}chunk": str(seq)}


@dataclass(frozen=True, slots=True)
class Receipt(Record):
    """A write that is in the sink: its promise, and the commit that keeps it.

    `snapshot` is the sink's commit id, `committed_at_ms` its time (epoch ms), `rows` the rows that the load made. The commit
    holds `kept` rows more where the range went through data files: older rows, written again as they were. `parent` is the
    commit that it was made on; None where it is the first, or the sink does not say.
    """

    UNREADABLE = ("a saved receipt cannot be read", "Clear the run's load task and the tasks after it")

    write: Write = field(metadata=held(Write))
    snapshot: int
    committed_at_ms: int
    _: KW_ONLY
    rows: int
    kept: int = 0
    parent: int | None = None

    @property
    def load(self) -> Load:
        """What was loaded."""
        return self.write.load

    @property
    def summary(self) -> LastCommit:
        """As kept in the cursor."""
        return LastCommit(self.snapshot, parent=self.parent, committed_at_ms=self.committed_at_ms, batch=self.load.batch)

    def of(self, **changes: Any) -> Receipt:
        """The receipt of a load that differs in these fields."""
        return replace(self, write=replace(self.write, load=replace(self.load, **changes)))

    @staticmethod
    def from_properties(
        properties: Mapping[str, str],
        *,
        snapshot: int,
        committed_at_ms: int,
        rows: int | None,
        kept: int = 0,
        parent: int | None = None,
        partitions: Collection[TopicPartition] | None = None,
    ) -> Receipt | None:
        """The receipt in a commit's properties, or None when the commit is not a load of Tidegate.

        `properties` are as `Write.to_properties` made them, with whatever else the sink keeps of a commit. `rows` are what the
        load made, by the commit's own counters, and `kept` the older rows that it wrote again. With `partitions` it has the
        ranges of these alone: those of a thousand take milliseconds.

        Raises StateNewer: a newer version of Tidegate has made the commit. StateCorrupt: the properties are there, but broken,
        or the counters are.
        """
        if PIPELINE not in properties:
            return None
        replay = properties.get(f"{PREFIX}replay")
        try:
            _check_format(properties, snapshot)
            load = Load(
                pipeline=properties[PIPELINE],
                seq=int(properties[f"{PREFIX}{'seq' if replay is None else 'chunk'}"]),
                run_id=properties[f"{PREFIX}run-id"],
                ranges=ranges_from_json(_only(json.loads(properties[f"{PREFIX}ranges"]), partitions)),
                topic_ids=dict(json.loads(properties.get(f"{PREFIX}topic-ids", "{}"))),
                generation=int(properties.get(f"{PREFIX}generation", "0")),
                replay=replay,
                batch=int(properties[BATCH_PROPERTY]) if BATCH_PROPERTY in properties else None,
                beside=fields_from_json(Position, json.loads(properties[BESIDE])) if BESIDE in properties else None,
                dedupe=fields_from_json(Dedupe, json.loads(properties[DEDUPE])) if DEDUPE in properties else None,
            )
            columns = tuple(ColumnChange(*change) for change in json.loads(properties.get(COLUMNS, "[]")))
            aside = int(properties[QUARANTINED]) if QUARANTINED in properties else None
            write = Write(load, properties[f"{PREFIX}transform"], properties[ATTEMPT], columns, aside)
        except (KeyError, ValueError, TypeError, AttributeError, RequestError) as error:
            raise _unreadable(snapshot, error) from error
        if rows is None:
            raise _unreadable(snapshot, "the commit's counters are no numbers")
        return Receipt(write, snapshot, committed_at_ms, rows=rows, kept=kept, parent=parent)

    def covers(self, ranges: tuple[OffsetRange, ...]) -> bool:
        """Whether the load replaced every offset of `ranges`; rows of a batch need a load of exactly these ranges.

        A row that aggregates a longer range counts records that the next batch counts again.
        """
        if self.load.batch is not None:
            return sorted(self.load.nonempty) == sorted(r for r in ranges if r.count)
        return covers(self.load.ranges, ranges)


def covering(receipts: Sequence[Receipt], task: Mapping[str, str], ranges: tuple[OffsetRange, ...]) -> Iterator[Receipt]:
    """The receipts of a task that cover the ranges, the newest first; `receipts` has the oldest commit first.

    The task is a batch, or a chunk of a replay (`task_properties`).
    """
    return (r for r in reversed(receipts) if r.load.task == task and r.covers(ranges))


def _only(nested: Mapping[str, Any], partitions: Collection[TopicPartition] | None) -> Mapping[str, Any]:
    """The ranges of some partitions, of all in JSON."""
    if partitions is None:
        return nested
    found: dict[str, dict[str, Any]] = {}
    for tp in partitions:
        bounds = nested.get(tp.topic, {}).get(str(tp.partition))
        if bounds is not None:
            found.setdefault(tp.topic, {})[str(tp.partition)] = bounds
    return found


def replay_of(properties: Mapping[str, str]) -> str | None:
    """The name of the replay in a load's properties; None for a batch of the schedule."""
    return properties.get(f"{PREFIX}replay")


def offsets_of(properties: Mapping[str, str], *, snapshot: int) -> int:
    """How many offsets a load read, by its properties, without making ranges of them. Raises StateCorrupt: they are broken."""
    try:
        topics = json.loads(properties[f"{PREFIX}ranges"])
        return sum(until - start for partitions in topics.values() for start, until in partitions.values())
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise _unreadable(snapshot, error) from error


def batch_of(properties: Mapping[str, str], *, snapshot: int) -> tuple[int, int] | None:
    """Generation and batch in a load's properties, without reading its ranges; None for a replay.

    Raises StateNewer: a newer version of Tidegate has made the commit. StateCorrupt: the properties are broken.
    """
    try:
        _check_format(properties, snapshot)
        if replay_of(properties) is not None:
            return None
        return int(properties.get(f"{PREFIX}generation", "0")), int(properties[f"{PREFIX}seq"])
    except (KeyError, ValueError) as error:
        raise _unreadable(snapshot, error) from error


def _check_format(properties: Mapping[str, str], snapshot: int) -> None:
    refuse_newer(int(properties.get(FORMAT_PROPERTY, FORMAT)), f"the receipt in snapshot {snapshot}")


def _unreadable(snapshot: int, reason: object) -> StateCorrupt:
    return StateCorrupt(
        f"snapshot {snapshot} carries a receipt that cannot be read ({reason})",
        fix="Look at the properties of that commit; a receipt is written by a load and never changed afterwards",
        snapshot=snapshot,
    )


BOUNDS = form(
    lambda bounds: ranges_to_json(OffsetRange(*tp, *ends) for tp, ends in bounds.items()),
    lambda nested: {r.topic_partition: (r.from_offset, r.until_offset) for r in ranges_from_json(nested)},
)
"""First and last offset of each partition; the last one is inclusive here."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What one load saw. Offsets are positions, not a row count: a log with transactions or compaction holds fewer records.

    `records` were read from Kafka, and `bytes` is the length of their keys and values together; `rows` were committed. Each is
    None where this call read and wrote nothing (the commit had landed before), or where the answer of the job was lost. Records
    that Spark reads several times for one write count once.
    `first_last` is the first and the last offset (both inclusive) of each partition's rows in the commit; a partition without a
    row is not in it, and offsets between may be missing. It comes from the sink's own account of the files that the commit
    added, not from counting on the way: that costs no time a record, however many partitions there are, and it is there as well
    for a commit whose answer was lost. It speaks of rows, so records that the transform dropped do not show. None where the
    sink keeps no such bounds. `repeats` are those of the records that were left out as repeats (`tidegate.core.load.repeats`).
    `errors` are the rows whose `_error` says what is wrong with their record; None also where the rows have no such column.
    `times` are the timestamps of the records, where the pipeline announces hours.
    """

    records: int | None
    rows: int | None
    bytes: int | None = None
    _: KW_ONLY
    first_last: Mapping[TopicPartition, tuple[int, int]] | None = field(default=None, metadata=optional(BOUNDS))
    repeats: int | None = None
    errors: int | None = None
    times: Times | None = field(default=None, metadata=optional(nested(Times)))

    @property
    def record_bytes(self) -> float | None:
        """Mean length of a record's key and value; None where nothing was read."""
        return self.bytes / self.records if self.bytes is not None and self.records else None

    def outside(self, ranges: Iterable[OffsetRange]) -> list[str]:
        """What lies outside the ranges, each in a few words; empty when every seen offset is where it should be."""
        allowed = {r.topic_partition: r for r in ranges}
        faults = []
        for tp, (first, last) in sorted((self.first_last or {}).items()):
            r = allowed.get(tp)
            if r is None:
                faults.append(f"{tp} was not asked for")
            elif first < r.from_offset or last >= r.until_offset:
                faults.append(f"{r} holds offsets {first} to {last}")
        return faults

    def to_json(self) -> dict[str, Any]:
        """JSON-ready. `times` are left out where nobody has asked for them."""
        written = fields_to_json(self)
        return written if self.times is not None else {name: value for name, value in written.items() if name != "times"}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Observed:
        """The inverse of `to_json`; all but records and rows may be missing, as what an older version has written.

        Raises RequestError, KeyError, ValueError, TypeError, AttributeError: the value has another shape.
        """
        return fields_from_json(Observed, {**dict.fromkeys(("bytes", "first_last", "repeats", "errors", "times")), **value})
