"""`tidegate replay`: load any past part of a pipeline again, through its replay DAG."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    err,
    open_remote,
    out,
    print_json,
    show_page,
    show_progress,
    the_pipeline,
    time_of,
)
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import (
    BrokerUnavailable,
    ConfigError,
    KafkaAuthFailed,
    RequestError,
    SinkUnavailable,
    StateMasked,
)
from tidegate.core.model.times import utc
from tidegate.core.model.uris import run_page
from tidegate.core.planning.run_notes import UNVERIFIED
from tidegate.core.replay.request import ReplayRequest, check_permitted
from tidegate.core.replay.run import PlannedReplay, plan_replay
from tidegate.waiting import now_ms

if TYPE_CHECKING:
    from tidegate.airflow.remote.api import AirflowApi
    from tidegate.airflow.remote.schedule import Remote

app = typer.Typer()
SPEC = re.compile(r"(?:(?:(?P<topic>[a-zA-Z0-9._-]+):)?(?P<partition>\d+):)?(?P<offset>-?\d+)")
LONGEST_S = 7 * 86_400.0
POLL_S = 1.0
UNSEEN = (ConfigError, BrokerUnavailable, KafkaAuthFailed, SinkUnavailable, StateMasked)
"""Errors of a service that this machine does not reach, while Airflow may reach it."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a run of a replay ended.

    `state` is Airflow's word. `chunks` are the loads that the run had to do, 0 where it was not planned, and `landed` those of
    tasks that succeeded: a task that failed may have loaded the first of its chunks. `verdict` is what it reported of all its
    chunks (`chunks`, `offsets`, `rows`), None where it did not come to that. `why` it failed is None where it succeeded.
    """

    run_id: str
    state: str
    chunks: int = 0
    landed: int = 0
    verdict: dict[str, Any] | None = None
    why: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether every chunk is in the table. A run that somebody marks is a success to Airflow without that."""
        return self.state == "success" and self.verdict is not None


@app.command()
def replay(  # noqa: PLR0913, PLR0917 - one option for each thing that a replay can be asked
    pipeline: Name,
    project: Project = HERE,
    from_: Annotated[
        list[str] | None,
        typer.Option("--from", help="first offset: 0:1000 of partition 0, orders:0:1000, or 1000 for all partitions"),
    ] = None,
    until: Annotated[
        list[str] | None, typer.Option(help="offset after the last one, written like --from; or a time, like --since")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="records from this time on, such as 2013-03-01 or 2013-03-01T12:00Z")
    ] = None,
    batch: Annotated[str | None, typer.Option(help="a batch, such as 12, or the first and the last: 12..18")] = None,
    run: Annotated[str | None, typer.Option(help="replay the batch of this DAG run")] = None,
    version: Annotated[
        str | None,
        typer.Option(help="offsets that these versions of the transform loaded last: '<2', =3f9a0c12b7de, !=3f9a0c12b7de"),
    ] = None,
    chunk_size: Annotated[int | None, typer.Option(help="approximate number of offsets of each load")] = None,
    parallel: Annotated[
        int | None, typer.Option(help="number of loads at the same time; by default one less than the sink's slots")
    ] = None,
    table: Annotated[str | None, typer.Option(help="load into this table instead of the pipeline's own, for a trial")] = None,
    transform: Annotated[str | None, typer.Option(help="use this transform instead of the pipeline's own")] = None,
    *,
    accept_loss: Annotated[bool, typer.Option("--accept-loss", help="leave out offsets that are no longer retained")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be read and replaced; change nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Load any past part of a pipeline again. Its rows are replaced; the schedule continues, and the cursor does not move.

    Select by offsets, times, batches, a run, or versions. A selection that cannot be replayed is refused before a run is
    triggered. The same command again continues an unfinished replay.
    """
    this = the_pipeline(project, pipeline)
    asked = {
        **_bounds(this, from_ or [], until or [], since),
        "batches": batch,
        "run": run,
        "versions": version,
        "chunk_size": chunk_size,
        "parallel": parallel,
        "table": table,
        "transform": transform,
        "accept_loss": accept_loss,
    }
    params = {name: value for name, value in asked.items() if value is not None and value is not False}
    request = ReplayRequest.from_params(params)
    check_permitted(this, request.table, request.transform)
    with open_remote(project) as remote:
        if dry_run:
            _print_report(this, request, remote, as_json=as_json)
            return
        try:
            _planned(this, request, remote)
        except UNSEEN as error:
            err.print(f"not checked from here, but by the run: {error}", style="yellow")
        ended = follow(remote.api, this.replay_dag, remote.api.trigger(this.replay_dag, params))
        page = remote.api.page(run_page(this.replay_dag, ended.run_id))
    if as_json:
        print_json(asdict(ended))
    elif ended.verdict is not None:
        chunks = f"{ended.verdict['chunks']} chunk{'s' if ended.verdict['chunks'] != 1 else ''}"
        out.print(f"replayed: {chunks}, {ended.verdict['offsets']:,} offsets, {ended.verdict['rows']:,} rows")
    show_page(page)
    if not ended.succeeded:
        err.print(f"the replay {ended.run_id} ended as {ended.state}: {ended.why}", style="red")
        if ended.chunks:
            landed = f"{ended.landed} of {ended.chunks} chunks are loaded"
            err.print(f"at least {landed}; the same command again loads what is missing")
        raise typer.Exit(1)


def _planned(pipeline: Pipeline, request: ReplayRequest, remote: Remote) -> PlannedReplay:
    """What a run would plan now; nothing is saved."""
    return plan_replay(
        pipeline,
        "dry-run",
        request,
        store=remote.store,
        brokers=remote.brokers(pipeline),
        sink=remote.reader(pipeline),
        now_ms=now_ms(),
        save=False,
    )


def _print_report(pipeline: Pipeline, request: ReplayRequest, remote: Remote, *, as_json: bool) -> None:
    report = _planned(pipeline, request, remote).report
    if report is None:  # only a run of the name "dry-run" that has saved a replay
        raise RequestError("the run dry-run has a replay of its own", fix="Delete its Variable")
    if as_json:
        print_json(report.to_json())
        return
    for line in report.lines():
        out.print(line)


def follow(api: AirflowApi, dag_id: str, run_id: str) -> Ended:
    """Wait for the run's end; a bar shows the chunks that are done."""
    err.print(f"{dag_id}: run {run_id}")
    turns: list[list[int]] = []  # the chunks of each load task
    with show_progress() as progress:

        def look(run: dict[str, Any]) -> None:
            nonlocal turns
            turns = turns or api.xcom(dag_id, run_id, "plan") or []
            if turns:
                done = turns[: api.count_mapped(dag_id, run_id, "load", "success")]  # in their order, but for retries
                progress("loading chunks", sum(map(len, done)), sum(map(len, turns)))
            else:
                progress("waiting for the run to start" if run["state"] == "queued" else "planning", 0, None)

        state = api.wait_run(dag_id, run_id, timeout_s=LONGEST_S, poll_s=POLL_S, progress=look)["state"]
    tasks = api.task_instances(dag_id, run_id)
    loaded = {task["map_index"] for task in tasks if (task["task_id"], task["state"]) == ("load", "success")}
    verdict = api.xcom(dag_id, run_id, "verify")
    why = UNVERIFIED if state == "success" else api.why_failed(dag_id, run_id)
    return Ended(
        run_id=run_id,
        state=state,
        chunks=sum(map(len, turns)),
        landed=sum(len(chunks) for place, chunks in enumerate(turns) if place in loaded),
        verdict=verdict,
        why=None if state == "success" and verdict is not None else why,
    )


def _bounds(pipeline: Pipeline, first: list[str], last: list[str], since: str | None) -> dict[str, Any]:
    """The form's parameters for --from, --until and --since: offsets, or times."""
    times = [text for text in last if _is_time(text)]
    if since is not None or times:
        if first or len(last) > 1:
            raise RequestError("use offsets or times, not both", fix="Use --from with offsets, or --since with a time")
        return {"from_time": _time(since), "until_time": _time(times[0] if times else (last[0] if last else None))}
    if not first and not last:
        return {}
    starts, ends = ([_spec(text, pipeline.source.named) for text in texts] for texts in (first, last))
    by_partition: dict[tuple[str | None, int | None], list[list[int | None]]] = {}
    for where, offset in starts:
        by_partition.setdefault(where, []).append([offset, None])
    for where, offset in ends:
        pairs = by_partition.setdefault(where, [])
        open_pair = next((pair for pair in pairs if pair[1] is None), None)
        if open_pair is None:
            pairs.append([None, offset])
        else:
            open_pair[1] = offset
    if (None, None) in by_partition:
        if len(by_partition) > 1:
            raise RequestError("use offsets of all partitions or of some, not both")
        return {"offsets": by_partition[None, None]}
    offsets: dict[str, dict[str, list[list[int | None]]]] = {}
    for (topic, partition), pairs in by_partition.items():
        offsets.setdefault(str(topic), {})[str(partition)] = pairs
    return {"offsets": offsets}


def _spec(text: str, topics: tuple[str, ...]) -> tuple[tuple[str | None, int | None], int]:
    match = SPEC.fullmatch(text)
    if match is None:
        raise RequestError(
            f"{text!r} is no offset", fix="Write 0:1000 for partition 0, orders:0:1000, or 1000 for all partitions"
        )
    topic, partition = match["topic"], match["partition"]
    if partition is not None and topic is None:
        if len(topics) != 1:
            raise RequestError(f"{text!r}: the pipeline reads several topics", fix=f"Name one, such as orders:{text}")
        topic = topics[0]
    return (topic, None if partition is None else int(partition)), int(match["offset"])


def _is_time(text: str) -> bool:
    if text.isdecimal():
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _time(text: str | None) -> str | None:
    if text is None:
        return None
    return utc(time_of(text))
