"""Laws of how a table is laid out, as files say it."""

from __future__ import annotations

import pytest

from tidegate.core.config.layout import Layout, PartitionField, SortField, is_property, partition_field, sort_field


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("country", PartitionField("country")),
        ("a.b", PartitionField("a.b")),
        ("day(at)", PartitionField("at", "days")),
        ("hours( at )", PartitionField("at", "hours")),
        ("bucket(16,größe)", PartitionField("größe", "bucket", 16)),
        ("truncate(4, zip)", PartitionField("zip", "truncate", 4)),
    ],
)
def test_a_partition_field_is_a_column_or_a_transform_of_one(text: str, field: PartitionField) -> None:
    """However it is spaced, in singular or plural; written again it is the same field."""
    assert PartitionField.parse(text) == PartitionField.parse(str(field)) == field


ODD = ("", "1a", "a b", "days(at", "days(at, 3)", "bucket(0, a)", "bucket(a)", "bucket(2147483648, a)", "weeks(at)", "a;")


@pytest.mark.parametrize("text", [*ODD, "days(a)\n", "_kafka_topic", "_kafka_partition"])
def test_anything_else_is_no_partition_field(text: str) -> None:
    """Nothing of it reaches a statement of SQL. Topic and partition are fields in any case, and not the file's to say."""
    with pytest.raises(ValueError):  # noqa: PT011
        partition_field(text)
    assert partition_field("truncate( 1000000 , _kafka_offset)") == "truncate(1000000, _kafka_offset)"


@pytest.mark.parametrize(
    ("text", "field", "written"),
    [
        ("a", SortField("a"), "a"),
        ("a.b asc nulls first", SortField("a.b"), "a.b"),
        ("a desc", SortField("a", descending=True, nulls_first=False), "a desc"),
        ("a desc nulls first", SortField("a", descending=True), "a desc nulls first"),
        ("a nulls last", SortField("a", nulls_first=False), "a nulls last"),
    ],
)
def test_a_sort_field_has_the_nulls_of_sql(text: str, field: SortField, written: str) -> None:
    """First in ascending order, last in descending order, unless it says otherwise."""
    assert SortField.parse(text) == field
    assert sort_field(text) == written
    with pytest.raises(ValueError):  # noqa: PT011
        sort_field(f"{text} up")


def test_a_table_that_is_as_the_file_says_has_nothing_to_change() -> None:
    """Also with properties that the file does not name, other cases, and in a later version of the format."""
    said = Layout(partition_by=("days(At)",), sort_by=("A",), properties={"x": "1"})
    held = Layout(partition_by=("days(at)",), sort_by=("a",), properties={"x": "1", "y": "2"}, format_version=3)
    assert said.changes(held, "lake.a.b") == []


def test_each_difference_is_the_sql_that_ends_it() -> None:
    """Fields that the table lacks or has beside the file's, the order, properties, the format."""
    said = Layout(partition_by=("days(at)",), sort_by=("a", "b desc"), properties={"x": "1", "y": "2"}, format_version=3)
    held = Layout(partition_by=("hours(at)",), properties={"x": "1"})
    assert said.changes(held, "lake.a.b") == [
        "ALTER TABLE lake.a.b DROP PARTITION FIELD hours(at)",
        "ALTER TABLE lake.a.b ADD PARTITION FIELD days(at)",
        "ALTER TABLE lake.a.b WRITE LOCALLY ORDERED BY a, b desc",
        "ALTER TABLE lake.a.b SET TBLPROPERTIES ('y' = '2')",
        "ALTER TABLE lake.a.b SET TBLPROPERTIES ('format-version' = '3')",
    ]
    odd = Layout(partition_by=("bucket(4, maß.größe)",), sort_by=("größe desc",))
    assert odd.changes(Layout(), "lake.a.b") == [
        "ALTER TABLE lake.a.b ADD PARTITION FIELD bucket(4, `maß`.`größe`)",
        "ALTER TABLE lake.a.b WRITE LOCALLY ORDERED BY `größe` desc",
    ]
    assert held.changes(said, "lake.a.b")[2] == "ALTER TABLE lake.a.b WRITE UNORDERED"


@pytest.mark.parametrize(
    ("key", "value", "may"),
    [
        ("write.parquet.compression-codec", "snappy", True),
        ("write.metadata.metrics.column.id", "counts", True),
        ("write.metadata.metrics.column._kafka_offset", "none", False),
        ("write.metadata.metrics.column._batch", "none", False),
        ("format-version", "1", False),
        ("Tidegate.owner.orders", "true", False),
        ("a'b", "x", False),
        ("a", 1, False),
        ("a", "x" * 1001, False),
        ("a", "x\ny", False),
    ],
)
def test_what_replacements_rely_on_is_not_the_files_to_set(key: str, value: object, *, may: bool) -> None:
    """Bounds of the origin, owners and the format's version."""
    assert is_property(key, value) is may
