"""Whether a table holds what its pipeline has committed, and what else was done to the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.core.audit.oracle import BatchVerification, Verification, verify_batches
from tidegate.core.load.receipt import Receipt
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger


@dataclass(frozen=True)
class VerdictView:
    """The verdict on a pipeline's table.

    Attributes:
        pipeline: its name.
        verification: record by record, or batch by batch where a row has no single record.
        other_commits: commits that changed rows and are no load of Tidegate, newest first: `snapshot`, `operation`, `at` (UTC).
        changed_columns: how the columns differ from those of the newest load, in words.
    """

    pipeline: str
    verification: Verification | BatchVerification
    other_commits: tuple[Mapping[str, Any], ...] = ()
    changed_columns: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the table holds what was committed, exactly once."""
        return self.verification.holds

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "pipeline": self.pipeline,
            **self.verification.to_json(),
            "other_commits": [dict(commit) for commit in self.other_commits],
            "changed_columns": list(self.changed_columns),
        }


def judge_batches(
    ledger: Ledger, cursor: Cursor, receipts: Sequence[Receipt], rows: Mapping[int | None, int]
) -> BatchVerification:
    """Compare the rows of each committed batch with its newest commit.

    Args:
        ledger: the saved ranges; read only of batches without a receipt, to know whether they read anything.
        cursor: what is committed.
        receipts: all of the pipeline, oldest commit first, replays too.
        rows: how many rows the table has of each batch; None is no batch.

    Raises:
        StateUnavailable: the store does not answer.
        StateCorrupt: a saved range cannot be read.
    """
    listing = ledger.listing()
    with_receipt = {receipt.load.batch for receipt in receipts}
    without_receipt = {r.seq: r.key for r in listing.ranges if r.seq <= cursor.seq and r.seq not in with_receipt}
    starts = cursor.at.starts
    loaded = [
        seq
        for seq, key in without_receipt.items()
        if any(r.until_offset > starts.get(r.topic_partition, 0) for r in ledger.saved_range(key).load.nonempty)
    ]
    return verify_batches(cursor.seq, rows, receipts, loaded, pending=bool(listing.of_seq(cursor.seq + 1)))
