"""A DAG run that replays, once it has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ReplayRun:
    """How a run of a replay ended.

    Attributes:
        run_id: the DAG run.
        state: as Airflow names it.
        chunks: loads that the run had to do; 0 where it was not planned.
        landed: those of them that are loaded.
        verdict: what the run reported of all its chunks (`chunks`, `offsets`, `rows`); None where it did not come to that.
        why: why it failed; None where it succeeded.
    """

    run_id: str
    state: str
    chunks: int = 0
    landed: int = 0
    verdict: Mapping[str, Any] | None = None
    why: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether every chunk is in the table."""
        return self.state == "success"

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "run_id": self.run_id,
            "state": self.state,
            "chunks": self.chunks,
            "landed": self.landed,
            "verdict": None if self.verdict is None else dict(self.verdict),
            "why": self.why,
        }
