"""The first task of a run: it saves what the run reads, before any work (`tidegate.core.planning.run.plan_batch`).

A run of Airflow's date backfill goes the same way with a replay of one chunk in the place of a batch: its plan says so, and its
commit checks the receipt and leaves the cursor alone. A replay saves all chunks, over which the load is mapped
(`tidegate.core.replay.run`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from tidegate.airflow import metrics
from tidegate.airflow.notes import described
from tidegate.airflow.operators.tasks import REPLAY, SHOWN, Patient, ports_of
from tidegate.core.audit.lag import measure_lag, total_lag
from tidegate.core.config.names import BACKFILL
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError, TidegateError
from tidegate.core.model.ranges import TopicPartition, offsets_from_json, total_count
from tidegate.core.planning.plan import Skip
from tidegate.core.planning.run import Planned, Request, plan_batch
from tidegate.core.replay.request import ReplayRequest, check_known
from tidegate.core.replay.run import PlannedReplay, plan_backfill, plan_replay
from tidegate.core.replay.verdict import ReplayReport
from tidegate.core.state.saved_replay import turns
from tidegate.views.metrics import asks_again
from tidegate.waiting import now_ms

DRY_RUN, REPORT = "dry_run", "report"
"""The XComs of what a replay would do, and of what one that is planned does."""


class PlanOperator(Patient):
    """Saves the range that this run reads, before anything else happens; skips the run where there is nothing to read."""

    ui_color = "#dbe9f6"

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan, adopt, or find again this run's range; the XCom names its Variable.

        Raises AirflowSkipException: there is nothing to read. TidegateError: as `plan_batch`.
        """
        planned = self._plan(context)
        if isinstance(planned, Skip):
            self.note(context, f"Nothing to read: {planned.reason}.")
            metrics.skipped(self.pipeline.name)
            raise AirflowSkipException(planned.reason)
        if isinstance(planned, PlannedReplay):
            self.note(context, *log_replay(planned, self.log))
            return replay_answer(planned)
        self.note(context, *self._log_plan(planned))
        saved = planned.saved
        return {
            "key": planned.key,
            "seq": saved.load.seq,
            "origin": planned.origin,
            "redo": planned.committed,
            "create": planned.create,
            "formerly": list(planned.formerly),
            "records": total_count(saved.load.ranges),
            "partitions": len(saved.load.ranges),
            "remaining": 0 if _request(context["params"]).is_own else saved.remaining,
            **self.handed_on(context),
        }

    def _plan(self, context: Context) -> Planned | PlannedReplay | Skip:
        ports = ports_of(self.pipeline, self.log)
        run, run_id = context["dag_run"], context["run_id"]
        if run.run_type == BACKFILL:
            if run.conf:  # what it was asked beside its date would be ignored
                raise RequestError(
                    f"a backfill takes no parameters: {', '.join(sorted(map(str, run.conf)))}",
                    fix="Create the backfill without them; `tidegate replay` loads other ranges, and has --dry-run",
                )
            interval, scheduled = _interval(self.pipeline, run)
            return self.patience(context).through(
                lambda: plan_backfill(self.pipeline, run_id, interval, scheduled=scheduled, now_ms=now_ms(), **ports)
            )
        ran_at_ms = int(run.run_after.timestamp() * 1000) if run.clear_number else None
        request = replace(_request(context["params"]), ran_at_ms=ran_at_ms)
        planned = self.patience(context).through(lambda: plan_batch(self.pipeline, run_id, request, now_ms=now_ms(), **ports))
        self._tell_lag(planned, ports)
        return planned

    def _tell_lag(self, planned: Planned | Skip, ports: Mapping[str, Any]) -> None:
        """Send how far behind the pipeline is: what the plan knows, and what only the brokers know once a minute."""
        if planned.waiting is not None:
            metrics.waiting(self.pipeline.name, planned.waiting)
        cursor = planned.cursor
        if cursor is None or not cursor.at.offsets or planned.waiting == 0:
            return
        before_ms, at_ms = cursor.fired_at_ms, now_ms()
        if isinstance(planned, Skip):  # the last run may have been such a one, too
            before_ms = max(before_ms or 0, at_ms - int(self.pipeline.interval_s * 1000))
        if not asks_again(before_ms, at_ms) or not metrics.are_on():
            return
        try:
            source = self.pipeline.source
            level, assign = source.isolation_level, source.assign
            lag = measure_lag(ports["brokers"], cursor.at.offsets, now_ms=at_ms, isolation_level=level, assign=assign)
        except Exception as error:  # noqa: BLE001 - no plan fails of a metric
            self.log.warning("how far behind the pipeline is cannot be measured: %s", described(error)["message"])
        else:
            metrics.lagging(self.pipeline.name, total_lag(lag))

    def _log_plan(self, planned: Planned) -> list[str]:
        """Log what this run reads and why; returns the same lines."""
        saved = planned.saved
        how = {
            "planned": "planned now",
            "own": "this run's own range, saved by an earlier try"
            + ("; committed before: loading it again, as a run id always means its first range" if planned.committed else ""),
            "adopted": f"adopted from run {saved.why.adopted_from}, which did not commit it; "
            "this run's own limits are not applied",
        }[planned.origin]
        lines = [f"batch {saved.load.seq} of {saved.load.pipeline}, {total_count(saved.load.ranges)} offsets: {how}"]
        if saved.why.rate is not None:
            lines.append(f"backpressure: {saved.why.rate}")
        if saved.resources is not None:
            lines.append(f"Spark: {saved.resources}")
        if planned.advice is not None and not planned.advice.holds:
            lines.append(planned.advice.verdict)
        lines += filter(None, (planned.maintenance, planned.held_back))
        reasons = {d.topic_partition: d for d in saved.why.decisions}
        for r in saved.load.ranges:
            why = reasons[r.topic_partition]
            lines.append(f"{r}: {r.count} offsets, from: {why.from_reason}, until: {why.until_reason}")
        lines += [f"{tp}: the cursor leaves offset {offset}, as accepted" for tp, offset in saved.jumped.items()]
        if saved.retired:
            lines.append(f"retired, since they are gone: {', '.join(map(str, saved.retired))}")
        if planned.caught_up_from is not None:
            lines.append(f"the cursor had gone back to batch {planned.caught_up_from}: it follows the table's commits again")
        for line in lines:
            self.log.info("%s", line)
        return lines


def _request(params: Mapping[str, Any]) -> Request:
    check_known(params, ("max_records", "until"))
    until = params.get("until")
    if until is None:
        return Request(params.get("max_records"))
    try:
        offsets: dict[TopicPartition, int] = offsets_from_json(until)
    except (TidegateError, ValueError, TypeError, AttributeError) as error:
        raise RequestError(
            f"the parameter `until` cannot be read: {until!r}",
            fix='Write an offset (exclusive) for each partition, such as {"flights": {"0": 1000, "1": 1000}}',
        ) from error
    return Request(params.get("max_records"), offsets or None)  # one that names no partition sets no bound


def _interval(pipeline: Pipeline, run: Any) -> tuple[tuple[int, int], list[str]]:
    """What a backfill's run covers (epoch ms), and the run id that the schedule gives to the same logical date.

    A cron schedule's runs have a data interval without length, unless `[scheduler] create_cron_data_intervals` is set; such a
    run covers the time from its date to the next one. Airflow names runs by the time after which they may start, which is the
    end of a data interval that has a length.
    """
    from croniter import croniter  # type: ignore[import-untyped]  # noqa: PLC0415 - Airflow's own; only a backfill needs it

    at: datetime = run.logical_date
    start, end = run.data_interval_start or at, run.data_interval_end or at
    if start == end and isinstance(pipeline.schedule, str):
        end = croniter(pipeline.schedule, start).get_next(datetime)
    covers = int(start.timestamp() * 1000), int(end.timestamp() * 1000)
    return covers, [f"scheduled__{run.run_after.astimezone(UTC).isoformat()}"]


class PlanReplayOperator(Patient):
    """Saves all chunks of this run's replay, before the first load. A dry run reports what it would do, and changes nothing."""

    ui_color = "#dbe9f6"

    def execute(self, context: Context) -> list[list[int]]:
        """Plan, or find again this run's replay; the numbers of the chunks to load, by the task that loads them.

        Raises AirflowSkipException: it is a dry run. TidegateError: see `tidegate.core.replay.run.plan_replay`.
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
        self.note(context, *lines)
        if dry:
            raise AirflowSkipException("dry run: nothing was changed")
        context["ti"].xcom_push(key=REPLAY, value=replay_answer(planned))
        return turns(planned.saved.chunks, planned.todo)


def _in_short(report: ReplayReport) -> dict[str, Any]:
    """The report in constant size; the log has all of it."""
    short = report.to_json()
    short["partitions"] = len(report.records)
    del short["records"]
    for name in ("lost", "replaces"):
        short[f"{name}_count"] = len(short[name])
        short[name] = short[name][:SHOWN]
    return short


def log_replay(planned: PlannedReplay, log: Any) -> list[str]:
    """Log what is replayed, and what that does; returns the same lines."""
    saved = planned.saved
    how = "planned now"
    if planned.origin == "own":
        how = "this run's own, saved by an earlier try; " + (
            "all of it landed: loading it again" if planned.redo else f"{len(planned.todo)} chunks are missing"
        )
    what = f"replay {saved.name} of {saved.load.pipeline} into {saved.table} by {saved.transform}"
    lines = [f"{what}, {len(saved.chunks)} chunks: {how}"]
    lines += planned.report.lines() if planned.report is not None else []
    for line in lines:
        log.info("%s", line)
    return lines


def replay_answer(planned: PlannedReplay) -> dict[str, Any]:
    """What the plan of a replay hands on: its Variable's key, and how to load."""
    saved = planned.saved
    return {
        "replay": saved.name,
        "key": planned.key,
        "origin": planned.origin,
        "redo": planned.redo,
        "chunks": len(saved.chunks),
        "parallel": saved.parallel,
        "records": total_count(saved.selection),
        "formerly": list(planned.formerly),
    }
