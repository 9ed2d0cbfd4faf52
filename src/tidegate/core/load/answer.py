"""A load's answer as its task hands it on to the commit: as small with 10,000 partitions as with one.

An XCom is a row of Airflow's database, so the answer leaves out what grows with the partitions: the receipt's ranges and topic
ids, and the observed bounds. A digest stands for ranges and ids. Where it equals the digest of the saved range, they are those
of the saved range; where it does not, the receipt is read again from the table. Either way the commit judges a whole receipt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.core.errors import ReceiptMismatch
from tidegate.core.load.job import LoadResult
from tidegate.core.load.receipt import Observed, Receipt
from tidegate.core.offsets.ranges import OffsetRange, ranges_to_json, total_count
from tidegate.core.state.codec import Shape
from tidegate.core.state.saved_range import SavedRange


def brief(result: LoadResult) -> dict[str, Any]:
    """The answer in constant size, JSON-ready."""
    load, whole = result.receipt.load, result.to_json()
    receipt = {name: value for name, value in whole["receipt"].items() if name not in ("ranges", "topic_ids")}
    return {
        **whole,
        "receipt": {**receipt, "offsets": total_count(load.ranges), "digest": _digest(load.ranges, load.topic_ids)},
        "observed": {name: value for name, value in whole["observed"].items() if name != "first_last"},
    }


def whole(told: Mapping[str, Any], saved: SavedRange, find: Callable[[int], Receipt | None]) -> LoadResult:
    """The answer that `brief` was made of, without the observed bounds; also one that was handed on whole, as once was usual.

    Args:
        told: the XCom.
        saved: what was to be loaded.
        find: the receipt of a snapshot, read from the table; None where the table does not stand on it.

    Raises:
        ReceiptMismatch: the receipt is of other ranges, and not in the table any more.
        StateCorrupt: the XCom is not a load's answer.
    """
    with Shape("a load's answer cannot be read", "Clear the run's load task"):
        receipt = told["receipt"]
        if "ranges" in receipt:
            return LoadResult.from_json(told)
        if receipt["digest"] == _digest(saved.to_load, saved.topic_ids):
            ours = {"ranges": ranges_to_json(saved.to_load), "topic_ids": dict(saved.topic_ids)}
            return LoadResult.from_json({**told, "receipt": {**receipt, **ours}})
        observed, seconds, before = Observed.from_json(told["observed"]), told["seconds"], told["landed_before"]
        snapshot = receipt["snapshot"]
    found = find(snapshot)
    if found is None:
        raise ReceiptMismatch(
            f"the table does not hold the receipt of snapshot {snapshot}, which the load of batch {saved.seq} found",
            fix="Clear the run's load task",
            snapshot=snapshot,
        )
    return LoadResult(found, observed, seconds, before)


def _digest(ranges: Sequence[OffsetRange], topic_ids: Mapping[str, str]) -> str:
    text = json.dumps([ranges_to_json(ranges), dict(topic_ids)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
