"""What a table lacks of the committed batches, and what a reload has brought back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.core.audit.table import Missing
from tidegate.core.audit.views.replays import ReplayRun
from tidegate.core.offsets.ranges import selection_to_json


@dataclass(frozen=True)
class ReloadView:
    """A reload: what the table lacked, the replay that loaded it again, and what is still missing.

    Attributes:
        pipeline: its name.
        table: its table.
        missing: what the table lacked before; None where it held everything.
        left: what it lacks now.
        replay: None where nothing was loaded.
    """

    pipeline: str
    table: str
    missing: Missing | None
    left: Missing | None
    replay: ReplayRun | None = None

    @property
    def holds(self) -> bool:
        """Whether the table holds everything that is committed, except what an operator accepted to be missing."""
        return self.left is None

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "pipeline": self.pipeline,
            "missing": _to_json(self.missing),
            "left": _to_json(self.left),
            "replay": None if self.replay is None else self.replay.to_json(),
        }


def _to_json(missing: Missing | None) -> dict[str, Any] | None:
    if missing is None:
        return None
    return {"ranges": selection_to_json(missing.ranges), "batches": list(missing.batches), "why": missing.why}
