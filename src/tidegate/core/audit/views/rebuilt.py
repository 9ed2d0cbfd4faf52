"""A schedule that was rebuilt from the table's own commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.core.errors import StateError
from tidegate.core.offsets.ranges import OffsetRange, selection_to_json
from tidegate.core.state.cursor import Cursor


@dataclass(frozen=True)
class RebuildView:
    """What was rebuilt, or would be.

    Attributes:
        pipeline: its name.
        cursor: the rebuilt cursor; partitions with `gaps` begin where it is.
        batches: how many saved ranges were made.
        notes: what the receipts leave open.
        gaps: offsets before the cursor that no receipt covers.
        refused: why this is not written without a person's decision; None where it is.
        written: whether it was saved.
        deleted: the keys that were deleted with it.
    """

    pipeline: str
    cursor: Cursor
    batches: int
    notes: tuple[str, ...] = ()
    gaps: tuple[OffsetRange, ...] = ()
    refused: StateError | None = None
    written: bool = False
    deleted: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; without the refusal, which is the error that follows."""
        return {
            "pipeline": self.pipeline,
            "written": self.written,
            "cursor": self.cursor.to_json(),
            "batches": self.batches,
            "notes": list(self.notes),
            "deleted": list(self.deleted),
            "gaps": selection_to_json(self.gaps),
        }
