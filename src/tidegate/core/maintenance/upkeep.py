"""What maintenance does to a table, what it did, and when a table needs it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tidegate.core.errors import RequestError

DAY_MS = 86_400_000
MB = 1 << 20
SMALL = 4
"""A table needs compaction where its files are, on average, smaller than this part of the target."""
MANY_FILES = 100
"""Fewer data files than this need no compaction, however small they are."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """How a table is kept: sizes in bytes, ages in ms.

    Loads and replays refer to snapshots that they have looked at, so none is expired that is younger than a day. Iceberg does
    not tell files that are being written from orphans, so no orphan is removed that is younger than a day either.

    Raises:
        RequestError: a number is below its least.
    """

    target_file_bytes: int = 128 * MB
    max_files: int = 10_000
    keep_snapshots: int = 1000
    keep_ms: int = 5 * DAY_MS
    orphans_ms: int = 3 * DAY_MS

    def __post_init__(self) -> None:
        least = {
            "target_file_bytes": MB,
            "max_files": 2,
            "keep_snapshots": 1,
            "keep_ms": DAY_MS,
            "orphans_ms": DAY_MS,
        }
        for name, low in least.items():
            if getattr(self, name) < low:
                raise RequestError(f"{name}: expected at least {low}, got {getattr(self, name)}", fix="Pass a larger number")


@dataclass(frozen=True, slots=True)
class Upkept:
    """What one run of maintenance did. `commits_kept` were written to the table of commits before their snapshots expired.

    `gap` is True where commits before the oldest that is known are in neither place: somebody else expired them, or dropped the
    table of commits.
    """

    files_before: int
    files_after: int
    bytes_rewritten: int
    commits_kept: int
    snapshots_expired: int
    orphans_removed: int
    gap: bool

    def to_json(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def needs(upkeep: Upkeep, *, files: int, total_bytes: int, snapshots: int) -> list[str]:
    """Why a table needs maintenance, one sentence for each reason; none where it does not.

    Args:
        upkeep: how the table is kept.
        files: data files of the current state.
        total_bytes: their size.
        snapshots: the snapshots that the table keeps.
    """
    reasons = []
    if files >= MANY_FILES and total_bytes / files < upkeep.target_file_bytes / SMALL:
        reasons.append(f"{files:,} data files of {total_bytes / files / MB:.1f} MB on average: compact them")
    if snapshots > 2 * upkeep.keep_snapshots:
        reasons.append(f"{snapshots:,} snapshots: expire those beyond {upkeep.keep_snapshots:,}")
    return reasons
