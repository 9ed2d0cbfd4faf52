"""How the table of a pipeline is maintained: which files are merged, which snapshots and files are removed.

Pure: pydantic and the core only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.core.config import values
from tidegate.core.config.declared import Settings
from tidegate.core.config.schedules import DAY_S

Step = Literal["compact", "expire", "remove_orphans"]
"""What is done to a table, one after the other."""

MIB = 1 << 20


@dataclass(frozen=True)
class Maintenance(Settings):
    """When a table is maintained, and what is kept. Durations are in seconds here, whatever the file writes.

    Loads and replays refer to the snapshot that they have looked at, and Iceberg does not tell files that are being written
    from orphans. So the rules of the settings allow nothing to be removed that is younger than a day.
    """

    schedule: values.Times | None = None
    """When the table is maintained. Without it, only when triggered."""
    target_file_bytes: values.FileBytes = 128 * MIB
    """Size of merged data files. Files between 75 % and 180 % of it stay as they are."""
    max_files: values.Files = 10_000
    """Most data files that one run merges; the next run continues."""
    keep_snapshots: values.Snapshots = 1000
    """So many of the newest snapshots never expire."""
    keep: values.Age = 5 * DAY_S
    """Younger snapshots never expire."""
    keep_orphans: values.Age | None = None
    """Removes older files of the table's data folder that no snapshot names. Set it only if the folder holds no other table:
    Iceberg cannot tell that table's files from orphans."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """What is done, in this order."""
        return ("compact", "expire") if self.keep_orphans is None else ("compact", "expire", "remove_orphans")
