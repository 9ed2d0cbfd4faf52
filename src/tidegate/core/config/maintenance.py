"""How the table of a pipeline is maintained: which files are merged, which snapshots and files are removed.

Pure: the standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.core.config import values
from tidegate.core.config.model import setting
from tidegate.core.config.schedules import DAY_S

Step = Literal["compact", "expire", "remove_orphans"]
"""What is done to a table, one after the other."""

MIB = 1 << 20


@dataclass(frozen=True)
class Maintenance:
    """When a table is maintained, and what is kept. Durations are in seconds here, whatever the file writes.

    Loads and replays refer to the snapshot that they have looked at, and Iceberg does not tell files that are being written
    from orphans. So the rules of the settings allow nothing to be removed that is younger than a day.
    """

    schedule: str | None = setting(
        values.TIMES, "When the table is maintained. Without it, maintenance starts only when it is triggered.", None
    )
    target_file_bytes: int = setting(
        values.FILE_BYTES,
        "Size of the data files that small ones are merged into. Files between 75 % and 180 % of it stay as they are.",
        128 * MIB,
    )
    max_files: int = setting(values.FILES, "Most data files that one run merges; the next run goes on.", 10_000)
    keep_snapshots: int = setting(values.SNAPSHOTS, "The newest snapshots of the table never expire, so many of them.", 1000)
    keep: float = setting(values.AGE, "A younger snapshot never expires.", 5 * DAY_S)
    keep_orphans: float | None = setting(
        values.AGE,
        "Files of the table's data folder that no snapshot names are removed when they are older than this. Without it, none "
        "is removed. Set it only where the folder holds no other table: Iceberg cannot tell that table's files from orphans.",
        None,
    )

    @property
    def steps(self) -> tuple[Step, ...]:
        """What is done, in this order."""
        return ("compact", "expire") if self.keep_orphans is None else ("compact", "expire", "remove_orphans")
