"""Pipeline in, DAGs out: the schedule, its replay, and the maintenance of its table where the file asks for it.

    <pipeline>             plan -> load -> commit
    <pipeline>__replay     plan -> load (of each chunk) -> verify
    <pipeline>__maintain   plan -> compact, expire, remove_orphans
    tidegate__doctor__<…>  look, load of a few records for each way that loads go; one DAG for all pipelines of a folder

A file of another kind has the DAGs that its package makes (`tidegate.beside`). Nothing is asked of a broker, database or Spark
here: a DAG file is parsed again and again. Each file's DAGs are built and validated by themselves, and what fails is the import
error of its own file: the others go on.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml
from airflow.sdk import DAG, Context, Param, get_parsing_context
from airflow.sdk.definitions.param import ParamsDict

from tidegate import __version__
from tidegate.airflow import declared
from tidegate.airflow.operators.doctor import DoctorLoadOperator, DoctorOperator
from tidegate.airflow.operators.finish import CatchUpOperator, FinishOperator
from tidegate.airflow.operators.load import LoadOperator
from tidegate.airflow.operators.maintenance import MaintainOperator, PlanMaintenanceOperator
from tidegate.airflow.operators.plan import PlanOperator, PlanReplayOperator
from tidegate.airflow.operators.tasks import RetryWhatCanHeal
from tidegate.airflow.replay_form import NUMBERED, OFFSET, count, flag, replay_params
from tidegate.beside import Stated, load_beside, loaded
from tidegate.core.config.names import COMMITS_TABLE, DOCTOR_DAG, MAINTAIN_DAG, REPLAY_DAG
from tidegate.core.config.pipeline import LagSchedule, Maintenance, Pipeline
from tidegate.core.config.schedules import DAY_S
from tidegate.core.model.errors import ConfigError
from tidegate.pipelines import digest, load_pipelines, shown_as

T = TypeVar("T")
Told = Callable[[Context], None]
"""One of Airflow's notifiers, or another function of a context."""
log = logging.getLogger(__name__)
EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
"""Before every run; with `catchup=False` it has no other meaning."""
LIMIT = timedelta(days=1)
"""A load, or a run of the maintenance, that takes longer hangs, and fails: all later runs would wait for it."""


def build_dags(folder: Path, *, spark_jobs: Path, on_failure: Told | Sequence[Told] | None = ()) -> dict[str, DAG]:
    """The DAGs of every pipeline and other file; one that is not valid becomes an import error of its own.

    A task's process, which reads the file for one DAG, makes those of one file: to make all takes 7 ms of CPU for each
    pipeline. All files are read all the same, since they are judged beside each other, which takes 0.7 ms. `folder` has the
    pipelines' YAML files; those of other kinds are in folders beside it. `spark_jobs` has the transforms, and the project's own
    `load_range.py` where there is one. `on_failure` is told of each run that fails, of every pipeline, replay, maintenance and
    receiver: it is the `on_failure_callback` of their DAGs. Raises ConfigError: it is nothing that can be called.
    """
    dags: dict[str, DAG] = {}
    told = _callbacks(on_failure)
    pipelines = load_pipelines(folder)
    wanted = get_parsing_context().dag_id  # of the task for which the file is read; None where it is read for all
    sharing = Counter(pipeline.pool for pipeline in pipelines.values() if isinstance(pipeline, Pipeline))

    def of_pipeline(pipeline: Pipeline, source: str) -> list[DAG]:
        return [
            pipeline_dag(pipeline, spark_jobs=spark_jobs, source=source),
            replay_dag(pipeline, spark_jobs=spark_jobs, sharing=sharing[pipeline.pool]),
            *([maintain_dag(pipeline, pipeline.maintenance, spark_jobs=spark_jobs)] if pipeline.maintenance else []),
        ]

    valid = [pipeline for pipeline in pipelines.values() if isinstance(pipeline, Pipeline)]
    if valid and (wanted is None or wanted.startswith(DOCTOR_DAG)):
        try:
            doctor = doctor_dag(valid, spark_jobs=spark_jobs, files=digest(folder))
            dags[doctor.dag_id] = doctor
        except Exception:
            log.exception("the DAG that examines this installation is not made")  # the file that is wrong has its own error
    for file, pipeline in pipelines.items():
        if wanted in {None, file.stem, f"{file.stem}{REPLAY_DAG}", f"{file.stem}{MAINTAIN_DAG}"}:
            dags |= _dags_of(file, pipeline, of_pipeline, told)

    def beside(kind: str, stated: Stated, source: str) -> list[DAG]:
        made: list[DAG] = loaded("tidegate.dags", kind)(stated, source, pipelines)
        return made

    if wanted is not None and dags:
        return dags  # of a pipeline, whose task needs no other file
    for kind, file, stated in load_beside(folder, pipelines):
        if wanted in {None, f"{file.stem}{kind.suffix}"}:
            dags |= _dags_of(file, stated, partial(beside, file.parent.name), told)
    return dags


def _dags_of(file: Path, stated: T | ConfigError, build: Callable[[T, str], list[DAG]], told: list[Told]) -> dict[str, DAG]:
    """The DAGs of one file by id, valid; or the one that stands for its error."""
    try:
        if isinstance(stated, ConfigError):
            raise stated  # noqa: TRY301 - one way for all that makes a file's import error
        built = build(stated, file.read_text(encoding="utf-8"))
        for dag in built:
            if told:
                dag.on_failure_callback, dag.has_on_failure_callback = told, True
            _validate(dag)
    except ConfigError as error:
        broken = BrokenFile(file, error)
    except Exception as error:  # noqa: BLE001 - whatever Airflow refuses, and however
        broken = BrokenFile(file, _refused(file, error))
    else:
        return {dag.dag_id: dag for dag in built}
    return {broken.dag_id: broken}


def _callbacks(on_failure: Told | Sequence[Told] | None) -> list[Told]:
    told = [on_failure] if callable(on_failure) else [*(on_failure or ())]
    for each in told:
        if not callable(each) or isinstance(each, type):
            raise ConfigError(f"build_dags: on_failure {each!r} cannot be called", fix="Give a notifier, or a function, itself")
    return [partial(_tell, each) for each in told]


def _tell(each: Told, context: Context) -> None:
    """Tell of a run by a copy: a notifier's templates become the texts of the first run that it tells of."""
    copy(each)(context)


def _validate(dag: DAG) -> None:
    """What Airflow does with each DAG once the file is parsed, where a failure would stop the file's other DAGs.

    Serialization, which comes next, is left to Airflow: it takes 0.1 s of each pipeline, and depends on nothing that the rules
    of pipeline files leave open, as a property test shows.
    """
    for task in dag.tasks:
        # Airflow validates and compares each task's copy several times whenever it reads the file: most of what a reading costs
        task.params = ParamsDict()  # the context of a task has the params of the DAG all the same
    dag.check_cycle()
    dag.validate()  # type: ignore[no-untyped-call]


def _refused(file: Path, error: Exception) -> ConfigError:
    message = " ".join(str(error).split())[:500]
    return ConfigError(
        f"{shown_as(file)}: Airflow refuses this file: {type(error).__name__}: {message}",
        fix="Correct the setting that the message names, then run `tidegate check`",
        file=shown_as(file),
    )


def pipeline_dag(pipeline: Pipeline, *, spark_jobs: Path, source: str = "") -> DAG:
    """The DAG of one pipeline; `source` is its YAML, for the docs page in the UI."""
    dag = _dag(
        pipeline,
        dag_id=pipeline.name,
        description=pipeline.description or None,
        doc_md=_docs(pipeline, source),
        schedule=_schedule(pipeline),
        max_active_runs=1,
        dagrun_timeout=None if pipeline.timeout_s is None else timedelta(seconds=pipeline.timeout_s),
        params=_params(pipeline),
        # what has begun ends first, and plans come before chunks of replays, whose weight is 1
        of_tasks={"weight_rule": "upstream", "priority_weight": 2},
    )
    with dag:
        plan = PlanOperator(task_id="plan", pipeline=pipeline, **declared.of_plan(pipeline))
        load = LoadOperator(
            task_id="load", pipeline=pipeline, spark_jobs=spark_jobs, pool=pipeline.pool, execution_timeout=LIMIT
        )
        commit = FinishOperator(task_id="commit", pipeline=pipeline)
        plan >> load >> commit
        if catches_up(pipeline):
            commit >> CatchUpOperator(task_id="catch_up", pipeline=pipeline)
    return dag


def catches_up(pipeline: Pipeline) -> bool:
    """Whether a run starts the next one; a @continuous schedule does so by itself."""
    return pipeline.catch_up and pipeline.schedule != "@continuous"


def replay_dag(pipeline: Pipeline, *, spark_jobs: Path, sharing: int = 1) -> DAG:
    """The DAG that replays any past part of a pipeline. Its loads wait behind the schedule's for a slot of the pool.

    `sharing` pipelines share its pool, this one among them.
    """
    # one slot stays for the schedule, and pipelines that share the pool have equal parts of the others
    slots = max(1, (pipeline.sink.slots - 1) // sharing)
    dag = _dag(
        pipeline,
        "replay",
        dag_id=pipeline.replay_dag,
        description=f"Loads any past part of {pipeline.name} once more",
        doc_md=_replay_docs(pipeline),
        schedule=None,
        is_paused_upon_creation=False,  # it has no schedule: a run is always somebody's wish
        params=replay_params(pipeline, slots),
    )
    with dag:
        plan = PlanReplayOperator(task_id="plan", pipeline=pipeline, **declared.of_plan(pipeline))
        load = LoadOperator.partial(
            task_id="load",
            pipeline=pipeline,
            spark_jobs=spark_jobs,
            pool=pipeline.pool,
            execution_timeout=LIMIT,
            max_active_tis_per_dag=slots,  # of all its runs together
            weight_rule="absolute",
            map_index_template="{{ task.shown_as }}",
        ).expand(chunks=plan.output)
        # not after a load that failed: that one says why, and a second error would only say what is missing for it
        load >> FinishOperator(task_id="verify", pipeline=pipeline, replays=True)
    return dag


def maintain_dag(pipeline: Pipeline, maintenance: Maintenance, *, spark_jobs: Path) -> DAG:
    """The DAG that maintains the table of a pipeline.

    Its steps do not depend on each other, so one that fails hides no other; they run one at a time, the first one first. They
    wait for no slot of the sink's pool: a compaction may take long, and the schedule goes on beside it.
    """
    dag = _dag(
        pipeline,
        "maintenance",
        dag_id=pipeline.maintain_dag,
        description=f"Maintains the table of {pipeline.name}",
        doc_md=_maintain_docs(pipeline, maintenance),
        schedule=maintenance.schedule,
        max_active_runs=1,
        max_active_tasks=1,
        dagrun_timeout=LIMIT,
        is_paused_upon_creation=None if maintenance.schedule else False,  # without a schedule a run is always somebody's wish
        params={"dry_run": flag("Dry run", "Change nothing. The run's log and note tell what there is to maintain.")},
    )
    steps = maintenance.steps
    with dag:
        plan = PlanMaintenanceOperator(task_id="plan", pipeline=pipeline, **declared.of_plan(pipeline, waits=False))
        for n, step in enumerate(steps):
            order = {"priority_weight": len(steps) - n, "weight_rule": "absolute"}
            plan >> MaintainOperator(task_id=step, step=step, pipeline=pipeline, spark_jobs=spark_jobs, **order)
    return dag


def doctor_dag(pipelines: Sequence[Pipeline], *, spark_jobs: Path, files: str) -> DAG:
    """The DAG that examines this installation; `files` is the digest of the files of its pipelines."""
    ways: dict[tuple[str, ...], list[Pipeline]] = {}
    for each in pipelines:
        way = each.source.connection, each.spark.connection, each.sink.table.partition(".")[0], each.sink.kind
        ways.setdefault(way, []).append(each)
    dag = DAG(
        f"{DOCTOR_DAG}{min(each.name for each in pipelines)}",
        description=f"Examines this installation of Tidegate {__version__} (files {files})",
        doc_md="What this installation lacks, as its tasks see it: `tidegate doctor` starts a run and prints what it found.",
        schedule=None,
        start_date=EPOCH,
        catchup=False,
        auto_register=False,
        is_paused_upon_creation=False,  # it has no schedule: a run is always somebody's wish
        max_active_runs=1,
        max_consecutive_failed_dag_runs=0,  # a run that finds something fails on purpose
        default_args={"retries": 0},
        dagrun_timeout=timedelta(hours=1),
        tags=["tidegate"],
    )
    with dag:
        DoctorOperator(task_id="look", pipelines=pipelines, files=files)
        for first, *_ in ways.values():
            DoctorLoadOperator(task_id=f"load_{first.name}", pipeline=first, spark_jobs=spark_jobs)
    _validate(dag)
    return dag


def _schedule(pipeline: Pipeline) -> Any:
    """What starts the runs, as Airflow takes it. Triggers are imported where a pipeline has one."""
    if not isinstance(pipeline.schedule, LagSchedule):
        return pipeline.schedule
    from tidegate.airflow.triggers import lag_asset  # noqa: PLC0415 - files of pipelines are parsed again and again

    return [lag_asset(pipeline, pipeline.schedule)]


def _dag(pipeline: Pipeline, *tags: str, schedule: Any, of_tasks: Mapping[str, Any] | None = None, **settings: Any) -> DAG:
    """A DAG of a pipeline, with what all of them have in common."""
    return DAG(
        schedule=schedule,
        start_date=EPOCH,
        catchup=False,
        auto_register=False,  # one that turns out not to be valid must not be found by Airflow
        tags=["tidegate", *tags, *pipeline.tags],
        default_args={
            "retries": pipeline.retries,
            "retry_policy": RetryWhatCanHeal(pipeline.retry_delay_s),
            # of a task whose process was killed: it raises nothing that the policy could look at
            "retry_delay": timedelta(seconds=pipeline.retry_delay_s),
            **({} if pipeline.owner is None else {"owner": pipeline.owner}),
            **(of_tasks or {}),
        },
        **settings,
    )


def _params(pipeline: Pipeline) -> dict[str, Param]:
    usual = pipeline.limits.max_records
    topics = pipeline.source.named or ("orders",)
    example = {topics[0]: {"0": 1000}}
    return {
        "max_records": count(
            "Maximum records",
            "The most records that this run reads, shared between partitions by lag. "
            f"Empty: {'no limit' if usual is None else f'{usual:,}, the limit of the pipeline'}.",
        ),
        "until": Param(
            None,
            type=["null", "object"],
            title="Read until",
            description="Offset (exclusive) of each partition; partitions that are left out are not read. "
            f"Empty: up to the end of the log. Example: {json.dumps(example)}",
            additionalProperties={**NUMBERED, "additionalProperties": OFFSET},
        ),
    }


CATCH_UP_DOCS = "| catch_up | starts the next run, if records waited beyond this run's range | does nothing |\n"


def _docs(pipeline: Pipeline, source: str) -> str:
    return f"""\
### {pipeline.name}
{pipeline.description}

Reads `{pipeline.source}`, and replaces in `{pipeline.sink.table}` the rows that came from each run's range, by
`{pipeline.transform}`.

| task | what it does | when it is cleared |
|---|---|---|
| plan | saves this run's offset range as a Variable, before any work | finds the saved range again |
| load | one bounded Spark job replaces the rows of that range | replaces the same rows again |
| commit | moves the cursor, if the receipt covers the range | does nothing, if the cursor has moved |
{CATCH_UP_DOCS if catches_up(pipeline) else ""}
A run that fails leaves its saved range; the next run adopts it. Variables: `tidegate.{pipeline.name}.*`.

```yaml
{source or yaml.safe_dump({"transform": pipeline.transform})}
```
"""


def _replay_docs(pipeline: Pipeline) -> str:
    return f"""\
### Replay of {pipeline.name}
Loads any past part of `{pipeline.source}` once more: its rows in `{pipeline.sink.table}` are replaced. The schedule goes on,
and its cursor neither moves nor is passed.

| task | what it does | when it is cleared |
|---|---|---|
| plan | checks what is asked, and saves all chunks as one Variable | finds them again, and what of them is missing |
| load | one bounded Spark job for each chunk; small chunks share a task | replaces the rows of its chunks again |
| verify | finds every chunk's receipt in the table | does so again |

A run that fails is continued by clearing its failed tasks, or by a new run with the same parameters: chunks that landed are not
repeated. Variables: `tidegate.{pipeline.name}.replay.*`.
"""


_ORPHANS_DOCS = "| remove_orphans | removes files of the data folder older than {:g} days that no snapshot names |\n"


def _maintain_docs(pipeline: Pipeline, maintenance: Maintenance) -> str:
    return f"""\
### Maintenance of {pipeline.name}
Maintains `{pipeline.sink.table}`, beside the schedule and replays. No row changes, and receipts are kept.

| task | what it does |
|---|---|
| plan | counts data files and snapshots |
| compact | merges small data files, at most {maintenance.max_files:,}, along the columns that identify rows |
| expire | removes snapshots older than {maintenance.keep / DAY_S:g} days, but the newest {maintenance.keep_snapshots:,}; \
their commits, with receipts, are kept in `{pipeline.sink.table}{COMMITS_TABLE}` |
{"" if maintenance.keep_orphans is None else _ORPHANS_DOCS.format(maintenance.keep_orphans / DAY_S)}
Each task may be cleared: to run it again does no harm.
"""


class BrokenFile(DAG):
    """Stands for a file that is not valid, so that Airflow shows an import error under the file's own name.

    Airflow keeps one import error a file, and stops every DAG of the Python file it names. So the error must be found when
    this one DAG is serialized, and must name the YAML instead: `relative_fileloc` keeps its value, and `tags` raises.
    """

    def __init__(self, file: Path, error: ConfigError) -> None:
        self._file = file
        self._error: ConfigError | None = None
        # a file may have any name, and a DAG's id may not; none of ours has a dot
        super().__init__(dag_id=f"broken.{zlib.crc32(shown_as(file).encode(errors='replace')):08x}", schedule=None)
        self._error = error

    def _the_file(self) -> str:
        return shown_as(self._file)

    def _ignore(self, value: Any) -> None:
        """Airflow assigns the Python file's path; the YAML's is the one to show."""

    relative_fileloc = property(_the_file, _ignore)

    def _no_tags(self) -> set[str]:
        if self._error is not None:
            raise self._error
        return set()

    tags = property(_no_tags, _ignore)
