"""A load's answer as its task hands it on to the commit: as small with 10,000 partitions as with one.

An XCom is a row of Airflow's database, so the answer leaves out what grows with the partitions: the receipt's ranges and topic
ids, and the observed bounds. A digest stands for ranges and ids. Where it equals the digest of the saved range, they are those
of the saved range; where it does not, the receipt is read again from the table. Either way the commit judges a whole receipt.

An answer that never reached its task is made again of the receipts in the table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegate.core.model.errors import ReceiptMismatch
from tidegate.core.model.fields import Shape
from tidegate.core.model.ranges import OffsetRange, ranges_to_json, total_count
from tidegate.core.state.jobs import LoadJob, LoadResult
from tidegate.core.state.receipt import Observed, Receipt, covering
from tidegate.core.state.saved_range import SavedRange


def answer_by_receipt(job: LoadJob, receipts: Sequence[Receipt], seconds: Mapping[str, float]) -> LoadResult | None:
    """The answer of a job that succeeded, and whose own answer is lost; None where no receipt can be the job's.

    It is the receipt of the job's attempt. A job that finds its batch in the table writes nothing, so without one it is the
    newest earlier receipt that covers the ranges, unless the job was to write in any case. Only for a job that succeeded: it
    has judged its commit, which nobody can do without what it observed. The receipts are of the job's pipeline, in the job's
    table, the oldest commit first.
    """
    newest_first = list(covering(receipts, job.load.task, job.load.ranges))
    own = next((r for r in newest_first if r.write.attempt == job.attempt), None)
    if own is not None:
        return LoadResult(own, Observed(None, None), seconds)
    if newest_first and not job.redo:
        return LoadResult(newest_first[0], Observed(None, None), seconds, landed_before=True)
    return None


def brief(result: LoadResult) -> dict[str, Any]:
    """The answer in constant size, JSON-ready."""
    load, whole = result.receipt.load, result.to_json()
    receipt = {name: value for name, value in whole["receipt"].items() if name not in ("ranges", "topic_ids", "beside")}
    return {
        **whole,
        "receipt": {**receipt, "offsets": total_count(load.ranges), "digest": _digest(load.ranges, load.topic_ids)},
        "observed": {name: value for name, value in whole["observed"].items() if name != "first_last"},
    }


def whole(answer: Mapping[str, Any], saved: SavedRange, find: Callable[[int], Receipt | None]) -> LoadResult:
    """The answer that `brief` was made of, without the observed bounds; `find` reads a snapshot's receipt from the table.

    Raises ReceiptMismatch: the receipt is of other ranges, and not in the table any more. StateCorrupt: the XCom is not a
    load's answer.
    """
    with Shape("a load's answer cannot be read", "Clear the run's load task and the tasks after it"):
        receipt = answer["receipt"]
        if receipt["digest"] == _digest(saved.load.nonempty, saved.load.topic_ids):
            left_out = {"ranges": ranges_to_json(saved.load.nonempty), "topic_ids": dict(saved.load.topic_ids), "beside": None}
            return LoadResult.from_json({**answer, "receipt": {**receipt, **left_out}})
        observed, snapshot = Observed.from_json(answer["observed"]), receipt["snapshot"]
        seconds, landed_before, age_s = answer["seconds"], answer["landed_before"], answer["spark_age_s"]
    in_table = find(snapshot)
    if in_table is None:
        raise ReceiptMismatch(
            f"the table does not hold the receipt of snapshot {snapshot}, which the load of batch {saved.load.seq} found",
            fix="Clear the run's load task and the tasks after it",
            snapshot=snapshot,
        )
    return LoadResult(in_table, observed, seconds, landed_before=landed_before, spark_age_s=age_s)


def _digest(ranges: Sequence[OffsetRange], topic_ids: Mapping[str, str]) -> str:
    text = json.dumps([ranges_to_json(ranges), dict(topic_ids)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
