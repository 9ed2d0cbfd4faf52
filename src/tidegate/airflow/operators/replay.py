"""The tasks of a replay: plan, load (mapped over the chunks), verify. What happens is decided in `tidegate.core.replay.run`."""

from __future__ import annotations

import time
from typing import Any

from airflow.sdk import AssetAlias, Context
from airflow.sdk.exceptions import AirflowSkipException

from tidegate.airflow import metrics, notes
from tidegate.airflow.events import AssetEvents
from tidegate.airflow.operators.announce import Announcing, hours_outlets, outlets_with
from tidegate.airflow.operators.load import SparkLoad
from tidegate.airflow.operators.shared import SHOWN, as_note, check_own, now_ms, plan_of, ports_of
from tidegate.airflow.retries import Patient
from tidegate.airflow.store import VariableStore
from tidegate.core.announce.hours import Announcement
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.events import Replayed
from tidegate.core.lineage import table_uri, topic_uris
from tidegate.core.load.receipt import Observed
from tidegate.core.offsets.ranges import total_count
from tidegate.core.replay.chunks import SavedReplay
from tidegate.core.replay.report import ReplayReport
from tidegate.core.replay.request import ReplayRequest
from tidegate.core.replay.run import PlannedReplay, plan_replay
from tidegate.core.replay.verdict import verify_replay
from tidegate.core.schedule.patience import Patience
from tidegate.core.state.ledger import Ledger

POLL_S = 1.0
REPLAY = "replay"
"""The XCom that names the saved replay; what the plan returns is the list of chunks that `load` is mapped over."""
DRY_RUN, REPORT = "dry_run", "report"
"""The XComs of what a replay would do, and of what one that is planned does."""


class PlanReplayOperator(Patient):
    """Saves all chunks of this run's replay, before the first load. A dry run reports what it would do, and changes nothing."""

    ui_color = "#dbe9f6"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> list[int]:
        """Plan, or find again this run's replay; the numbers of the chunks to load.

        Raises:
            AirflowSkipException: it is a dry run.
            TidegateError: see `tidegate.core.replay.run.plan_replay`.
        """
        params = context["params"]
        dry = bool(params.get("dry_run"))
        request = ReplayRequest.from_params(params)
        ports, run_id = ports_of(self.pipeline, self.log), context["run_id"]
        planned = self.patience(context).through(
            lambda: plan_replay(self.pipeline, run_id, request, save=not dry, now_ms=now_ms(), **ports)
        )
        lines = log_replay(planned, self.log)
        if dry:
            lines.insert(0, "Dry run: nothing was changed.")
        if planned.report is not None:
            report = {"table": planned.saved.table, "transform": planned.saved.transform, **_in_short(planned.report)}
            context["ti"].xcom_push(key=DRY_RUN if dry else REPORT, value=report)
        context["ti"].xcom_push(key=notes.XCOM_KEY, value=as_note(lines))
        if dry:
            raise AirflowSkipException("dry run: nothing was changed")
        context["ti"].xcom_push(key=REPLAY, value=replay_answer(planned))
        return list(planned.todo)


def _in_short(report: ReplayReport) -> dict[str, Any]:
    """The report in constant size; the log has all of it."""
    short = report.to_json()
    short["partitions"] = len(report.records)
    del short["records"]
    for name in ("lost", "replaces"):
        short[f"{name}_count"] = len(short[name])
        short[name] = short[name][:SHOWN]
    return short


class LoadChunkOperator(SparkLoad):
    """Replaces, in the sink, the rows of one chunk.

    Args:
        chunk: its number.
    """

    def __init__(self, *, chunk: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.chunk = chunk

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Load the saved chunk and hand on the receipt found in the sink. What has landed is written again only on purpose.

        Raises:
            TidegateError: as `run_job`.
        """
        plan = plan_of(context, REPLAY)
        self._wait_for_turn(context, plan["parallel"])
        saved = self._ledger.saved_replay(plan["key"])
        check_own(saved, context)
        redo = plan["redo"] or self.cleared(context)
        return self.run_job(self.order_chunk(saved, self.chunk, redo=redo), context)

    def _wait_for_turn(self, context: Context, parallel: int | None) -> None:
        """Wait until fewer than `parallel` chunks before this one are being loaded; the first of them never waits.

        Airflow has no such limit for one run. It is kept here in the process: giving the slot back and coming again
        (a reschedule) is a race in its scheduler, which may take the first ending for that of the second coming.
        """
        ti = context["ti"]
        place = ti.map_index or 0
        while parallel is not None and place >= parallel:
            states = ti.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id])
            running = (name for name, state in states.get(ti.run_id, {}).items() if state == "running")
            before = sum(int(name.rpartition("_")[2]) < place for name in running)
            if before < parallel:
                return
            time.sleep(POLL_S)


class VerifyReplayOperator(Patient):
    """Checks that the table holds every chunk's receipt, by one version of the transform, of the topics that were planned.

    Then the table's asset gets an event, as after a commit. The outlet is an alias, since an asset as outlet gets an event
    whatever table the replay wrote to.
    """

    ui_color = "#f6e3c5"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(outlets=[AssetAlias(name=pipeline.replay_dag), *hours_outlets(pipeline)], **kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        """The verdict.

        Raises:
            ReceiptMismatch: chunks are missing; the message names them.
            TidegateError: see `tidegate.core.replay.run.verify_replay`.
        """
        plan = plan_of(context, REPLAY)
        patience = self.patience(context)
        saved, event, verdict = verified(self.pipeline, plan["key"], context, patience, self.log)
        said = announced_by(self.pipeline, saved, patience, context, self.log)
        self.outlets = outlets_with(self.outlets, self.pipeline, said.keys)
        if saved.table == self.pipeline.sink.table:  # a trial's table is nobody's asset
            AssetEvents(context, self.outlets, saved.table, self.pipeline.hours_asset).replayed(event, said.keys)
        return verdict


def log_replay(planned: PlannedReplay, log: Any) -> list[str]:
    """Log what is replayed, and what that does; returns the same lines."""
    saved = planned.saved
    how = "planned now"
    if planned.origin == "own":
        how = "this run's own, saved by an earlier try; " + (
            "all of it landed: loading it again" if planned.redo else f"{len(planned.todo)} chunks are missing"
        )
    lines = [
        f"replay {saved.replay} of {saved.pipeline} into {saved.table} by {saved.transform}, {len(saved.chunks)} chunks: {how}"
    ]
    lines += planned.report.lines() if planned.report is not None else []
    for line in lines:
        log.info("%s", line)
    return lines


def replay_answer(planned: PlannedReplay) -> dict[str, Any]:
    """What the plan of a replay hands on: its Variable's key, and how to load."""
    saved = planned.saved
    return {
        "replay": saved.replay,
        "key": planned.key,
        "origin": planned.origin,
        "redo": planned.redo,
        "chunks": len(saved.chunks),
        "todo": len(planned.todo),
        "parallel": saved.parallel,
        "records": total_count(saved.selection),
    }


def verified(
    pipeline: Pipeline, key: str, context: Context, patience: Patience, log: Any
) -> tuple[SavedReplay, Replayed, dict[str, Any]]:
    """The saved replay at `key`, its event, and the verdict on it, logged, as JSON of constant size.

    Raises:
        RequestError: it is another run's.
        ReceiptMismatch: chunks are missing, or differ in their transform's version.
        TidegateError: see `tidegate.core.replay.run.verify_replay`.
    """
    ports = ports_of(pipeline, log)
    saved = Ledger(ports["store"], pipeline.name).saved_replay(key)
    check_own(saved, context)
    verdict = patience.through(
        lambda: verify_replay(saved, sink=ports["sink"], brokers=ports["brokers"], level=pipeline.source.isolation_level)
    )
    log.info("all %d chunks of replay %s are in %s: %s", verdict.chunks, saved.replay, saved.table, verdict)
    loaded: dict[str, Any] = {
        "replay": saved.replay,
        "chunks": verdict.chunks,
        "offsets": verdict.offsets,
        "rows": verdict.rows,
        "transform": verdict.transform,
    }
    metrics.replayed(pipeline.name, offsets=verdict.offsets, rows=verdict.rows)
    expired = {"expired_offsets": total_count(verdict.expired), "expired": [str(r) for r in verdict.expired[:SHOWN]]}
    read: dict[str, Any] = {"table": table_uri(saved.table), "topics": topic_uris(pipeline.source.connection, saved.selection)}
    return saved, Replayed(pipeline=saved.pipeline, run_id=saved.run_id, **loaded, **read), {**loaded, **expired}


def announced_by(pipeline: Pipeline, saved: SavedReplay, patience: Patience, context: Context, log: Any) -> Announcement:
    """What a replay that is verified announces; nothing where the file does not ask for it, or the table is another."""
    if pipeline.announce is None or saved.table != pipeline.sink.table:
        return Announcement()
    answers = context["ti"].xcom_pull(task_ids="load")
    # of a mapped task there is one for each chunk that this run has loaded
    loads = [answer for answer in (answers if isinstance(answers, list) else [answers]) if answer]
    observed = {load["receipt"]["seq"]: Observed.from_json(load["observed"]) for load in loads}
    cursor = Ledger(VariableStore(), pipeline.name).cursor()
    said = Announcing(pipeline, pipeline.announce, patience, log).of_replay(saved, cursor, observed)
    if said.left:
        context["ti"].xcom_push(key=notes.XCOM_KEY, value=f"Hours announced: {said}")
    return said
