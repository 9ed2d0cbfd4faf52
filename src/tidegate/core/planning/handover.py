"""A pipeline goes on where a stream stopped, gives its place to one, or ends: what is saved decides. Pure, on ports.

The offsets of a Structured Streaming query are in its checkpoint (Spark's `OffsetSeqLog` and `CommitLog`): `offsets/N` has the
ends of batch N, one line for each source, and `commits/N` is there once its sink has taken it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tidegate.core.config.pipeline import Source
from tidegate.core.model.errors import RequestError, TidegateError, some
from tidegate.core.model.ranges import TopicPartition, offsets_from_json
from tidegate.core.planning.plan import Skip
from tidegate.core.planning.rename import saved_keys
from tidegate.core.planning.run import Planned
from tidegate.core.state.ports import StateStore

VERSION = "v1"
"""Of the offset log: Spark writes no other where sources have no names."""


def checkpoint_offsets(text: str, source: Source) -> dict[TopicPartition, int]:
    """The next offset of each partition that the source reads, by a file of a checkpoint's folder `offsets`.

    Raises RequestError: it is no such file, or of no topic of the source, or two streams of the query read one partition.
    """
    version, *lines = text.splitlines() or [""]
    if version != VERSION:
        raise RequestError(
            f"this is no offset log of Structured Streaming of version {VERSION}, but begins with {version[:20]!r}",
            fix="Name the folder that the query has as its checkpointLocation",
        )
    found: dict[TopicPartition, int] = {}
    for line in lines[1:]:  # the first one is of the batch
        try:
            offsets = offsets_from_json(json.loads(line))
        except (TidegateError, ValueError, TypeError, AttributeError):
            continue  # of a source that is not Kafka
        if twice := sorted(offsets.keys() & found.keys()):
            raise RequestError(
                f"two sources of the query read {twice[0]}", fix="Write source.start yourself, with the lower one"
            )
        found |= offsets
    return _read_of(found, source, "the query")


def _read_of(offsets: Mapping[TopicPartition, int], source: Source, whose: str) -> dict[TopicPartition, int]:
    read = {tp: at for tp, at in sorted(offsets.items()) if source.reads(tp)}
    if not read:
        topics = some(sorted({tp.topic for tp in offsets})) if offsets else "nothing of Kafka"
        raise RequestError(f"{whose} has read {topics}, and the pipeline reads {source}", fix="Correct one of the two")
    return read


def table_offsets(last: Mapping[TopicPartition, int], source: Source) -> dict[TopicPartition, int]:
    """The next offset of each partition that the source reads, by the last ones in a table. Raises RequestError: none is."""
    return _read_of({tp: offset + 1 for tp, offset in last.items()}, source, "the table's writer")


def handed_over(pipeline: str, planned: Planned | Skip) -> tuple[int, dict[TopicPartition, int]]:
    """The last batch of a pipeline, and where a stream goes on after it: by what a run would read next, if it were not saved.

    Raises RequestError: nothing is committed yet, or a batch is planned and not committed, so its rows may be in the table.
    """
    cursor = planned.cursor
    if isinstance(planned, Planned) and planned.origin != "planned":
        raise RequestError(
            f"batch {planned.saved.load.seq} of {pipeline} is planned by run {planned.saved.why.adopted_from}, and not "
            "committed: its rows may be in the table",
            fix="Unpause the DAG until a run has loaded it, then pause it again",
        )
    if cursor is None or not cursor.seq:
        raise RequestError(f"{pipeline} has committed nothing yet", fix="Let the stream begin where the file's `start` says")
    ranges, retired = (planned.saved.load.ranges, planned.saved.retired) if isinstance(planned, Planned) else ((), ())
    offsets = {**cursor.at.offsets, **{r.topic_partition: r.from_offset for r in ranges}}
    return cursor.seq, {tp: at for tp, at in sorted(offsets.items()) if tp not in retired}


def remove(pipeline: str, store: StateStore, progress: Callable[[int, int], object] = max) -> int:
    """Remove what is saved of a pipeline, the cursor last; returns how many values there were.

    No run of it may be active. A removal that ended in between is done again. Raises StateUnavailable: a step failed.
    """
    keys = saved_keys(pipeline, store)
    for done, key in enumerate(keys, 1):
        store.delete(key)
        progress(done, len(keys))
    return len(keys)
