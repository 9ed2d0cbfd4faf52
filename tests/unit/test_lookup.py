"""Who may write into a table: laws that hold for every sink."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.records import changed, load_job, write_of
from tidegate.core.load.lookup import check_owners, check_rows, in_the_way, own
from tidegate.core.model.errors import SinkMisfit
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.receipt import Receipt

RANGES = (OffsetRange("orders", 0, 10, 20), OffsetRange("orders", 1, 0, 5))
JOB = load_job("orders", 3, "r", RANGES, "t:f", "lake.shop.orders", {})
BATCHES = changed(JOB, identity="batch")


def loaded(pipeline: str, *ranges: OffsetRange) -> Receipt:
    return Receipt(write_of(pipeline, 0, "r", ranges, "t@1", "a"), 1, 0, rows=1)


def test_a_commit_of_another_pipeline_is_in_the_way_where_ranges_overlap() -> None:
    """One offset is enough; what only touches is not; a batch is in the way of every batch; one's own commits never are."""
    overlapping, touching = (
        loaded("visits", OffsetRange("orders", 0, 19, 30)),
        loaded("visits", OffsetRange("orders", 0, 20, 30)),
    )
    assert in_the_way(overlapping, JOB)
    assert not in_the_way(touching, JOB)
    assert in_the_way(touching, BATCHES)
    assert not in_the_way(loaded("orders", *RANGES), JOB)
    assert not in_the_way(loaded("orders", *RANGES), BATCHES)


def test_what_a_pipeline_has_loaded_under_another_name_is_its_own() -> None:
    before = loaded("sales", *RANGES)
    assert own(before, JOB) is before
    renamed = replace(JOB, formerly=("sales",))
    assert own(before, renamed).load.pipeline == "orders"
    assert not in_the_way(own(before, renamed), renamed)


def test_rows_of_another_pipeline_are_not_deleted() -> None:
    """The refusal names the offsets and both pipelines; rows of batches are refused by their owner, not here."""
    others = (loaded("visits", OffsetRange("orders", 0, 15, 30)), loaded("returns", *RANGES))
    message = "lake.shop.orders holds rows of orders-0 [15, 20) by pipeline visits, which a load of orders would delete"
    with pytest.raises(SinkMisfit, match=re.escape(message)) as caught:
        check_rows(JOB, others)
    assert caught.value.fields == {"table": "lake.shop.orders", "pipeline": "orders", "owner": "visits"}
    check_rows(JOB, ())
    check_rows(BATCHES, others)


def test_a_table_is_written_by_its_owners_and_by_whoever_shares_it_with_all_of_them() -> None:
    """A table that nobody has claimed is free."""
    check_owners(JOB, set(), ())
    check_owners(JOB, {"orders"}, ())
    check_owners(JOB, {"orders", "visits"}, ())
    check_owners(replace(JOB, shared_with=("visits",)), {"visits"}, ())
    with pytest.raises(SinkMisfit, match="belongs to pipeline returns and visits, not to orders") as caught:
        check_owners(replace(JOB, shared_with=("visits",)), {"visits", "returns"}, ())
    assert caught.value.fields == {"table": "lake.shop.orders", "pipeline": "orders", "owner": "returns and visits"}
    assert caught.value.fix.startswith("If orders is one of them under a new name, name its file back, or run `tidegate")
    assert "sink.shared_with" in caught.value.fix


def test_a_table_of_batches_is_never_shared() -> None:
    """Not with an owner, and not with a pipeline that has loaded into it without being an owner."""
    check_owners(BATCHES, {"orders"}, ())
    shared = replace(BATCHES, shared_with=("visits",))
    for owners, others in (({"orders", "visits"}, ()), ({"orders"}, (loaded("visits", *RANGES),))):
        with pytest.raises(SinkMisfit, match="belongs to pipeline visits, whose batches have the same numbers"):
            check_owners(shared, owners, others)
