"""How a new table is laid out for those who query it: its partition fields, the order of its rows, its properties.

The origin's topic and partition are partition fields in any case, after those of the file: a data file holds rows of one Kafka
partition, so new rows are appended, and an aligned replay replaces whole files, whatever else the table is partitioned by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegate.core.model.columns import BATCH, ORIGIN_COLUMNS, PARTITION, TOPIC
from tidegate.core.model.fields import MAPPING, TUPLE

FORMAT_VERSIONS = (2, 3)
LONGEST_PROPERTY = 1000
"""Characters of a property's value."""
MOST_BUCKETS = 2**31 - 1

_COLUMN = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
PARTITION_FIELD = re.compile(
    rf"(?P<column>{_COLUMN})|(?P<unit>year|month|day|hour)s?\( *(?P<of>{_COLUMN}) *\)"
    rf"|(?P<cut>bucket|truncate)\( *(?P<width>[1-9]\d{{0,9}}) *, *(?P<cut_of>{_COLUMN}) *\)"
)
SORT_FIELD = re.compile(rf"(?P<column>{_COLUMN})( +(?P<way>asc|desc))?( +nulls +(?P<nulls>first|last))?")
_OWN_PROPERTY = re.compile(
    rf"tidegate\..*|format-version|sort-order|write\.metadata\.metrics\.column\.({'|'.join((*ORIGIN_COLUMNS, BATCH))})"
)


class PartitionField(NamedTuple):
    """A partition field: a column, and what Iceberg makes of its values.

    `transform` is identity, years, months, days, hours, bucket or truncate; `width` is the number of buckets, or the length of
    what is kept, of the last two.
    """

    column: str
    transform: str = "identity"
    width: int | None = None

    @staticmethod
    def parse(text: str) -> PartitionField:
        """Of `country`, `days(event_time)`, `bucket(16, customer)`, `truncate(4, zip)`. Raises ValueError: it is none."""
        found = PARTITION_FIELD.fullmatch(text)
        if found is None or int(found["width"] or 1) > MOST_BUCKETS:
            raise ValueError(text)
        if found["column"]:
            return PartitionField(found["column"])
        if found["unit"]:
            return PartitionField(found["of"], f"{found['unit']}s")
        return PartitionField(found["cut_of"], found["cut"], int(found["width"]))

    def __str__(self) -> str:
        """As files have it."""
        return self._of(self.column)

    @property
    def sql(self) -> str:
        """As SQL has it."""
        return self._of(sql_name(self.column))

    def _of(self, column: str) -> str:
        if self.transform == "identity":
            return column
        return f"{self.transform}({'' if self.width is None else f'{self.width}, '}{column})"


OWN_FIELDS = frozenset({PartitionField(TOPIC), PartitionField(PARTITION)})
"""Those that a table of records has in any case."""


class SortField(NamedTuple):
    """A column that rows are sorted by within a file."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    @staticmethod
    def parse(text: str) -> SortField:
        """Of `customer`, `amount desc`, `amount desc nulls first`. Nulls come first by default, in descending order last.

        Raises ValueError: it is none of these.
        """
        found = SORT_FIELD.fullmatch(text)
        if found is None:
            raise ValueError(text)
        descending = found["way"] == "desc"
        return SortField(found["column"], descending, not descending if found["nulls"] is None else found["nulls"] == "first")

    def __str__(self) -> str:
        """As files have it, without what is the default."""
        return self.column + self._way

    @property
    def sql(self) -> str:
        """As SQL has it, whose defaults are the same."""
        return sql_name(self.column) + self._way

    @property
    def _way(self) -> str:
        nulls = "" if self.nulls_first is not self.descending else f" nulls {'first' if self.nulls_first else 'last'}"
        return f"{' desc' if self.descending else ''}{nulls}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a table is laid out, beside the partition fields that it has in any case.

    `partition_by` and `sort_by` are fields as `PartitionField` and `SortField` write them.
    """

    partition_by: tuple[str, ...] = field(default=(), metadata=TUPLE)
    sort_by: tuple[str, ...] = field(default=(), metadata=TUPLE)
    properties: Mapping[str, str] = field(default_factory=dict, metadata=MAPPING)
    format_version: int = 2

    @property
    def order(self) -> str:
        """How rows are sorted within a file, as the SQL `ALTER TABLE … WRITE` says it."""
        fields = ", ".join(SortField.parse(one).sql for one in self.sort_by)
        return f"LOCALLY ORDERED BY {fields}" if fields else "UNORDERED"

    def changes(self, held: Layout, table: str) -> list[str]:
        """What of a table is not as this layout says: each as the SQL that changes it, for the files that are written later.

        `held` is the layout that the table has, with all its properties.
        """
        alter = f"ALTER TABLE {table}"
        dropped, added = _beyond(held.partition_by, self.partition_by), _beyond(self.partition_by, held.partition_by)
        changes = [f"{alter} DROP PARTITION FIELD {PartitionField.parse(one).sql}" for one in dropped]
        changes += [f"{alter} ADD PARTITION FIELD {PartitionField.parse(one).sql}" for one in added]
        if [one.lower() for one in self.sort_by] != [one.lower() for one in held.sort_by]:
            changes.append(f"{alter} WRITE {self.order}")
        wanted = dict(self.properties)
        if self.format_version > held.format_version:
            wanted["format-version"] = str(self.format_version)
        changes += [
            f"{alter} SET TBLPROPERTIES ({sql_text(key)} = {sql_text(value)})"
            for key, value in wanted.items()
            if held.properties.get(key) != value
        ]
        return changes


def _beyond(fields: Iterable[str], others: Iterable[str]) -> list[str]:
    """Those that are not among the others; names of columns are compared without case."""
    known = {one.lower() for one in others}
    return [one for one in fields if one.lower() not in known]


def sql_name(column: str) -> str:
    """The name of a column, or of a field inside it, as SQL takes it: bare where that is enough, since people copy it."""
    return ".".join(part if part.isascii() else f"`{part}`" for part in column.split("."))


def sql_text(of: str) -> str:
    """A text as Spark's SQL takes it."""
    escaped = of.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def partition_field(text: str) -> str:
    """A partition field of a file, as it is compared. Raises ValueError: it is none, or one that every table has."""
    parsed = PartitionField.parse(text)
    if parsed in OWN_FIELDS:
        raise ValueError(text)
    return str(parsed)


def sort_field(text: str) -> str:
    """A sort field of a file, as it is compared. Raises ValueError: it is none."""
    return str(SortField.parse(text))


def is_property(key: str, value: object) -> bool:
    """Whether a file may set a property of its table: Tidegate's own are not its to set."""
    return (
        isinstance(value, str)
        and bool(re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", key))
        and not _OWN_PROPERTY.fullmatch(key.lower())
        and len(value) <= LONGEST_PROPERTY
        and value.isprintable()
    )
