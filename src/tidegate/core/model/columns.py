"""The columns that identify a row of a table: by the record that it came from (its origin), or by the batch that made it.

The names of the origin begin with `_kafka_`, because sinks reserve shorter ones: Spark refuses to read an Iceberg table that
has a column `_partition`.
"""

from __future__ import annotations

from typing import NamedTuple

TOPIC = "_kafka_topic"
"""The topic of a row's record (text)."""
PARTITION = "_kafka_partition"
"""The partition of a row's record (32-bit integer)."""
OFFSET = "_kafka_offset"
"""The offset of a row's record (64-bit integer)."""
ORIGIN_COLUMNS = (TOPIC, PARTITION, OFFSET)
"""The origin of a row; a table is partitioned by the first two."""
BATCH = "_batch"
"""The number of the batch that made a row (64-bit integer), where the transform aggregates."""
RAW, ERROR = "_raw", "_error"
"""The columns that hold the text of a broken record, and what is wrong with it; null where nothing is."""
REJECT = "_reject"
"""The column that says why the transform rejects a row; null where it does not. No table has it."""


class ColumnChange(NamedTuple):
    """What a load changed of its table's columns, before it wrote the rows that need it.

    `column` is the name, `a.b` for a field inside a struct. `was` and `now` are types as SQL writes them: `was` is None for a
    column that the table had not, and both are the same for one that it required before.
    """

    column: str
    was: str | None
    now: str

    def __str__(self) -> str:
        """In a few words."""
        if self.was is None:
            return f"{self.column} {self.now} was added"
        if self.was == self.now:
            return f"{self.column} {self.now} is not required any more"
        return f"{self.column} {self.was} is {self.now} now"
