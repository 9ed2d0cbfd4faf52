"""The loads of a pipeline that a table's commits hold, each receipt parsed when it is asked for.

A receipt of a thousand partitions takes milliseconds to parse, and a table may hold thousands of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

from tidegate.core.model.ranges import TopicPartition
from tidegate.core.state.history import TableCommit, TableHistory
from tidegate.core.state.receipt import Receipt, batch_of, replay_of


@dataclass(frozen=True)
class Loads:
    """The commits of a pipeline's loads, the oldest first, each with the number of its batch; None for a replay's."""

    commits: tuple[tuple[TableCommit, int | None], ...]

    @staticmethod
    def of(history: TableHistory, pipeline: str) -> Loads:
        """The loads of a pipeline in a table's history.

        Raises:
            StateCorrupt: the number of a batch cannot be read.
        """
        found = []
        for commit in reversed(history.loads(pipeline)):
            batch = batch_of(commit.properties, snapshot=commit.snapshot)
            found.append((commit, None if batch is None else batch[1]))
        return Loads(tuple(found))

    @cached_property
    def batches(self) -> frozenset[int]:
        """The numbers of the batches."""
        return frozenset(seq for _, seq in self.commits if seq is not None)

    def of_batches(self, seqs: Collection[int], partitions: Collection[TopicPartition] | None = None) -> list[Receipt]:
        """The receipts of some batches, and of all replays since the first of them, the oldest first.

        Where a batch has none, since its snapshot has expired, replays of it may be older than all others.

        Args:
            seqs: the numbers of the batches.
            partitions: which ranges the receipts are to have; None: all.

        Raises:
            StateCorrupt: a receipt cannot be read.
        """
        first = next((n for n, (_, seq) in enumerate(self.commits) if seq in seqs), -1) if self.batches.issuperset(seqs) else -1
        return self._receipts(lambda n, _, seq: seq in seqs or (seq is None and n > first), partitions)

    def of_replay(self, name: str) -> list[Receipt]:
        """The receipts of one replay, the oldest first.

        Raises:
            StateCorrupt: a receipt cannot be read.
        """
        return self._receipts(lambda _n, commit, seq: seq is None and replay_of(commit.properties) == name)

    def _receipts(
        self, wanted: Callable[[int, TableCommit, int | None], bool], partitions: Collection[TopicPartition] | None = None
    ) -> list[Receipt]:
        return [commit.receipt(partitions) for n, (commit, seq) in enumerate(self.commits) if wanted(n, commit, seq)]
