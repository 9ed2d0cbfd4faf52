"""What a plan asks of the brokers: the watermarks of the partitions that a pipeline reads, and where new ones begin."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from tidegate.core.config.pipeline import Pipeline, Source
from tidegate.core.config.values import StartGroup, StartOffsets
from tidegate.core.model.errors import RequestError, TopicNotFound, WatermarksUnstable
from tidegate.core.model.ranges import OffsetRange, TopicPartition, offsets_to_json
from tidegate.core.model.watermarks import Watermarks, check_same_topics, other_topics
from tidegate.core.planning.plan import Beginning, RangePolicy
from tidegate.core.planning.trust import KEEP_ROWS, ids_of
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ports import Brokers
from tidegate.core.state.saved_range import SavedRange

WATERMARK_READS = 3


def read_log(source: Source, cursor: Cursor, brokers: Brokers) -> tuple[Watermarks, RangePolicy]:
    """The watermarks of the partitions that the source names now, and what a policy says of where a plan begins."""
    watermarks, missing = read_watermarks(source, cursor, brokers), left_out(source, cursor)
    unread = read_unread(source, cursor, missing, brokers)
    start = _start(source, cursor, watermarks, brokers)
    return watermarks, RangePolicy(start=start, on_deleted=source.on_deleted, left_out=missing, unread=unread)


def left_out(source: Source, cursor: Cursor) -> frozenset[TopicPartition]:
    """The partitions of the cursor that the pipeline's file does not name any more."""
    return frozenset(tp for tp in cursor.at.offsets if not source.reads(tp))


def read_unread(
    source: Source, cursor: Cursor, partitions: Collection[TopicPartition], brokers: Brokers
) -> tuple[OffsetRange, ...]:
    """The records behind the cursor that the brokers hold of `partitions`, which the pipeline's file does not name any more.

    Raises KafkaError: the brokers do not answer.
    """
    held = _held(source, _existing({tp.topic for tp in partitions}, brokers), brokers)
    other = other_topics(cursor.at.topic_ids, held.topic_ids)
    return tuple(
        OffsetRange(tp.topic, tp.partition, max(cursor.at.offsets[tp], held.earliest[tp]), held.latest[tp])
        for tp in sorted(partitions)
        if tp in held.latest and tp.topic not in other and cursor.at.offsets[tp] < held.latest[tp]
    )


def _existing(topics: Collection[str], brokers: Brokers) -> list[str]:
    """Those of the topics that exist: to ask for another one is an error."""
    return brokers.match_topics("|".join(map(re.escape, sorted(topics)))) if topics else []


def read_watermarks(source: Source, cursor: Cursor, brokers: Brokers) -> Watermarks:
    """The watermarks of every partition that the source names now.

    A log end below the cursor is read again, after a while, before it is believed: a new leader may not know its end yet.
    Raises TopicNotFound: a named topic is missing and not to be retired, or a first run's pattern matches none. KafkaError: the
    brokers do not answer; `WatermarksUnstable` where the log end is below the cursor, and moving.
    """
    topics = _topics(source, cursor, brokers)
    ends: list[Mapping[TopicPartition, int]] = []
    for _ in range(WATERMARK_READS):
        answer = _held(source, topics, brokers)
        watermarks = answer.assigned(source.assign)
        _check_assigned(source, cursor, answer)
        ends.append({tp: end for tp, end in watermarks.latest.items() if end < cursor.at.offsets.get(tp, 0)})
        if not ends[-1] or other_topics(cursor.at.topic_ids, watermarks.topic_ids):
            return watermarks
        brokers.settle()
    if any(before != ends[-1] for before in ends):
        raise WatermarksUnstable(
            f"the log ends of {', '.join(map(str, sorted(ends[-1])))} are below the cursor of {cursor.pipeline}, and moving",
            fix="Nothing was planned; a broker is recovering, and the task tries again",
        )
    return watermarks


def _topics(source: Source, cursor: Cursor, brokers: Brokers) -> list[str]:
    if source.pattern is not None:
        matching = brokers.match_topics(source.pattern, source.exclude)
        if not matching and not cursor.seq:
            raise TopicNotFound(f"no topic matches {source.pattern}", fix="Create one, or correct `source.pattern`")
        return matching
    if source.on_deleted == "stop" or not cursor.seq:
        return list(source.named)
    # a topic that is gone is left out, to be retired; one that was never read is a mistake in the file
    known = {*cursor.at.topic_ids, *(tp.topic for tp in cursor.at.offsets)}
    existing = _existing(source.named, brokers)
    return [topic for topic in source.named if topic in existing or topic not in known]


def _check_assigned(source: Source, cursor: Cursor, answer: Watermarks) -> None:
    """A partition that the file assigns exists, or has existed. Raises TopicNotFound: it does not."""
    if source.assign is None:
        return
    counts = Counter(tp.topic for tp in answer.latest)
    for topic, partitions in source.assign.items():
        for tp in (TopicPartition(topic, number) for number in partitions):
            if topic in counts and tp not in answer.latest and tp not in cursor.at.offsets:
                raise TopicNotFound(
                    f"partition {tp} does not exist: topic {topic} has {counts[topic]} partitions",
                    fix="Correct `source.assign`, or add partitions to the topic",
                )


def _start(source: Source, cursor: Cursor, watermarks: Watermarks, brokers: Brokers) -> Beginning:
    """The policy's start: "earliest", "latest", or the offsets that the file's offsets, timestamp or group stand for.

    It applies to the first run, and to topics that were added to the file since. A topic that a pattern matches later is read
    from its earliest offset. Raises RequestError: the group has committed nothing of what a first run reads, or is at an offset
    that the log does not hold. KafkaError: the group has members, or the brokers do not answer.
    """
    start, known = source.start, {tp.topic for tp in cursor.at.offsets}
    begin = [tp for tp in watermarks.latest if not cursor.seq or (source.pattern is None and tp.topic not in known)]
    if isinstance(start, str):
        return Beginning(start, of=frozenset(begin))
    if isinstance(start, StartOffsets):
        return Beginning(start.offsets, of=frozenset(begin))
    if not begin:
        return Beginning()
    if isinstance(start, StartGroup):
        committed = brokers.committed(start.group)
        of_group = {tp: committed[tp] for tp in begin if tp in committed}
        if not (of_group or cursor.seq):
            raise RequestError(
                f"group {start.group} has committed no offset of {source}",
                fix="Correct source.start.group: `kafka-consumer-groups.sh --list` names the groups",
            )
        _check_group(start.group, of_group, watermarks)
        return Beginning(of_group, "group", frozenset(begin))
    resolved = {tp: watermarks.latest[tp] for tp in begin}
    for tp, offset in brokers.offsets_at(dict.fromkeys(begin, start.timestamp_ms)).items():
        if offset is not None:  # a record that came between the two answers lies beyond the log end that was read first
            resolved[tp] = min(offset, resolved[tp])
    return Beginning(resolved, "timestamp", frozenset(begin))


def _check_group(group: str, committed: Mapping[TopicPartition, int], log: Watermarks) -> None:
    """A group is where the log can be read. Raises RequestError: it is not."""
    held = {tp: min(max(at, log.earliest[tp]), log.latest[tp]) for tp, at in committed.items()}
    for tp, at in committed.items():
        if held[tp] == at:
            continue
        if log.latest[tp] < at <= log.latest[tp] + log.held_back.get(tp, 0):
            says, fix = "behind which a transaction is open", "Wait until it has ended, and clear the task"
        else:
            says = f"whose log holds {log.earliest[tp]} to {log.latest[tp]}"
            fix = f"To begin with what it holds, write source.start as {json.dumps({'offsets': offsets_to_json(held)})}"
        raise RequestError(f"group {group} is at offset {at} of {tp}, {says}", fix=f"Nothing was planned. {fix}")


def watermarks_of(pipeline: Pipeline, saved: SavedRange, brokers: Brokers) -> Watermarks:
    """The watermarks of the topics of a saved range; those that are gone are left out where the pipeline retires topics.

    Raises TopicNotFound: a topic is missing and not to be retired. KafkaError: the brokers do not answer.
    """
    topics = sorted({r.topic for r in saved.load.nonempty})
    return _held(pipeline.source, _existing(topics, brokers) if pipeline.source.on_deleted == "retire" else topics, brokers)


def _held(source: Source, topics: Sequence[str], brokers: Brokers) -> Watermarks:
    return brokers.watermarks(topics, isolation_level=source.isolation_level) if topics else Watermarks({}, {})


def check_topics(
    topic_ids: Mapping[str, str], ranges: Sequence[OffsetRange], brokers: Brokers, *, since: str, fix: str = KEEP_ROWS
) -> None:
    """Ranges that were planned before are loaded only from the topics that they were planned for, by their ids.

    `since` and `fix` are for the error, as in `check_same_topics`. Raises TopicRecreated: a topic was deleted and created again
    since. KafkaError: the brokers do not answer.
    """
    planned = ids_of(ranges, topic_ids)
    check_same_topics(planned, brokers.topic_ids(list(planned)), since=since, fix=fix)
