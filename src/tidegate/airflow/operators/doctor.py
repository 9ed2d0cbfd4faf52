"""The tasks of the DAG `tidegate__doctor__<…>`: what an installation lacks, as the tasks of pipelines see it.

    look            packages, Variables, Kafka
    load_<pipeline> Spark, and one real load of the newest records, for each way that loads go

Nothing that pipelines use is changed. A task that finds something broken fails, with all of it in its log; what it found is an
XCom, which `tidegate doctor` prints.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, get_args

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from tidegate.airflow.connections import brokers_of, kafka_settings
from tidegate.airflow.operators.load import LoadOperator
from tidegate.airflow.store import answering, shadowed
from tidegate.core.audit.findings import (
    DEPLOYED,
    FINDINGS,
    Finding,
    State,
    broken,
    doubtful,
    is_broken,
    looked,
    of_error,
    sound,
    unknown,
)
from tidegate.core.config.names import QUARANTINE
from tidegate.core.config.pipeline import LagSchedule, Pipeline, Source
from tidegate.core.config.schedules import CONTINUOUS, DAY_S
from tidegate.core.model.errors import some
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.ledger import cursor_key
from tidegate.core.state.receipt import Load
from tidegate.kafka.settings import planning_client, spark_client
from tidegate.sinks import reader_of

if TYPE_CHECKING:
    from tidegate.kafka.brokers import AdminBrokers

MOST = 200
"""Findings of a task that are handed on; the log has all of them."""
LAST = 10
"""Offsets that the load is tried with."""
SAME_MODULE = {"pyspark-client": "pyspark"}
"""A distribution that another one may stand in for."""


class DoctorOperator(BaseOperator):
    """Looks at what needs no Spark. `files` is the digest of the pipelines' files that this process has read."""

    ui_color = "#f6efdb"

    def __init__(self, *, pipelines: Sequence[Pipeline], files: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipelines = tuple(pipelines)
        self.digest = files

    def execute(self, context: Context) -> None:
        """Look. Raises AirflowFailException: something is broken."""
        context["ti"].xcom_push(key=DEPLOYED, value={"version": version("tidegate"), "files": self.digest})
        found = [
            *looked("packages", "tasks", lambda: packages_found("airflow")),
            *looked("variables", "tasks", lambda: variables_found(self.pipelines)),
            *self._kafka(),
        ]
        hand_on(context, found, self.log)

    def _kafka(self) -> Iterator[Finding]:
        of_connection = sorted(self.pipelines, key=lambda pipeline: pipeline.source.connection)
        for connection, pipelines in groupby(of_connection, lambda pipeline: pipeline.source.connection):
            yield from looked("kafka-connection", connection, partial(self._connection, connection, list(pipelines)))

    def _connection(self, connection: str, pipelines: Sequence[Pipeline]) -> Iterator[Finding]:
        from tidegate.kafka.brokers import AdminBrokers  # noqa: PLC0415 - parsing the DAG needs no Kafka client
        from tidegate.kafka.client import PERSON_S, REFUSED_S  # noqa: PLC0415
        from tidegate.kafka.rights import brokers_found  # noqa: PLC0415

        settings = kafka_settings(pipelines[0], "doctor", planning_client, self.log)
        kafka_settings(pipelines[0], "doctor", spark_client, self.log)
        yield sound("kafka-connection", connection)
        found = list(brokers_found(settings, connection))
        yield from found
        if is_broken(found):
            return
        with closing(AdminBrokers(settings, timeout_s=PERSON_S, refused_s=REFUSED_S)) as brokers:
            for each in pipelines:
                yield from looked("topics", each.name, partial(self._topics, each, settings, brokers))

    def _topics(self, pipeline: Pipeline, settings: Mapping[str, str], brokers: AdminBrokers) -> Iterator[Finding]:
        from tidegate.kafka.rights import retention_found, rights_found  # noqa: PLC0415 - as above

        name, source = pipeline.name, pipeline.source
        topics = topics_of(source, brokers)
        if not topics:
            says = f"the cluster has no topic that matches {source}, or shows none to this login"
            yield doubtful("topics", name, says, "Correct source.pattern")
            return
        rights = list(rights_found(settings, name, topics, pipeline.consumer_group, source.assign or {}))
        yield from rights
        gap_s = longest_gap_s(pipeline.schedule)
        if gap_s is not None and any(each.check == "describe-configs" and each.state == "sound" for each in rights):
            yield from retention_found(brokers.retention_ms, name, topics, gap_s)


class DoctorLoadOperator(LoadOperator):
    """Loads the newest records of a pipeline's topics into a table of its own, finds it without Spark, and drops the table."""

    ui_color = "#f6efdb"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        # no repeats are looked for, no hour is announced, who is away is named at once, and any record may be rejected
        quarantine = pipeline.quarantine and replace(pipeline.quarantine, budget=1.0)
        super().__init__(pipeline=replace(pipeline, dedupe=None, announce=None, wait_s=0, quarantine=quarantine), **kwargs)

    def execute(self, context: Context) -> None:  # type: ignore[override]
        """Look. Raises AirflowFailException: something is broken."""
        named = self.pipeline.spark.connection
        found = list(looked("spark-connection", named, self._connection))
        if not is_broken(found) and self._is_warm:
            found += looked("spark", named, self._server)
        elif not is_broken(found):
            says = "loads go through spark-submit: what a driver has is known by the load alone"
            found.append(unknown("spark", named, says))
        if not is_broken(found):
            found += looked("load", self.pipeline.name, partial(self._trial, context))
        hand_on(context, found, self.log)

    _is_warm = False

    def _connection(self) -> Iterator[Finding]:
        self._is_warm = self.spark_connection().conn_type == "spark_connect"
        yield sound("spark-connection", self.pipeline.spark.connection)

    def _server(self) -> Iterator[Finding]:
        from tidegate.spark.errors import translated  # noqa: PLC0415 - parsing the DAG needs no Spark
        from tidegate.spark.examination import spark_found  # noqa: PLC0415
        from tidegate.spark.session import connect  # noqa: PLC0415

        named, catalog = self.pipeline.spark.connection, self.pipeline.sink.table.partition(".")[0]
        with connect(self._connect_url(), name="tidegate-doctor") as spark, translated():
            yield from spark_found(spark, named, catalog)

    def _trial(self, context: Context) -> Iterator[Finding]:
        pipeline = self.pipeline
        table = f"{pipeline.trials}_doctor_{uuid.uuid4().hex[:8]}"
        part = self._newest_offsets()
        if part is None:
            yield self._untried("its topics hold no record that a load could be tried with")
            return
        batch = 1 if pipeline.identity == "batch" else None
        load = Load(pipeline=pipeline.name, seq=1, run_id=context["run_id"], ranges=(part,), batch=batch)
        job = self.order(context, load, transform=pipeline.transform, table=table)
        loaded = False

        def load_and_find() -> Iterator[Finding]:
            nonlocal loaded
            result = self.through_spark(lambda runner: runner.run(job), context, self.patience(context))
            loaded = True
            if result.receipt.rows + (result.receipt.write.quarantined or 0) == 0:
                yield self._untried(f"the last {part.count} offsets of {part.topic_partition} made no row")
            else:
                yield self._found(table)

        yield from looked("load", pipeline.name, load_and_find)
        left = self._drop(f"{table}{QUARANTINE}", table)
        if loaded and left:  # of a load that failed, the log names them: most likely it has made none
            says = f"this task may have made {some(left)}, and has not dropped it"
            fix = f"Look at the task's log, and run in Spark {some(f'DROP TABLE IF EXISTS {each} PURGE' for each in left)}"
            yield doubtful("load", pipeline.name, says, fix)

    def _untried(self, why: str) -> Finding:
        fix = "Produce a record, then examine again"
        return unknown("load", self.pipeline.name, why, fix)

    def _newest_offsets(self) -> OffsetRange | None:
        """The last offsets of a partition; the very last may be the mark of a transaction. Raises KafkaError."""
        from tidegate.kafka.client import PERSON_S, REFUSED_S  # noqa: PLC0415 - parsing the DAG needs no Kafka client

        source, limits = self.pipeline.source, {"timeout_s": PERSON_S, "refused_s": REFUSED_S}
        with closing(brokers_of(self.pipeline, "doctor", self.log, **limits)) as brokers:
            marks = brokers.watermarks(topics_of(source, brokers), isolation_level=source.isolation_level)
        held = ((tp, marks.earliest[tp], end) for tp, end in sorted(marks.latest.items()) if source.reads(tp))
        return next((OffsetRange(*tp, max(start, end - LAST), end) for tp, start, end in held if end > start), None)

    def _found(self, table: str) -> Finding:
        reader, name, catalog = reader_of(self.pipeline.sink.kind), self.pipeline.name, table.partition(".")[0]
        if reader.receipts(table, name):
            reader.without_origin(table)  # which reads more than the catalog: files of the warehouse
            return sound("load", name)
        return broken(
            "load",
            name,
            f"Spark has loaded into {table}, and Airflow's worker does not find that table: {catalog} is another catalog "
            "to PyIceberg than to Spark",
            f"Give PYICEBERG_CATALOG__{catalog.upper()}__* of the workers what spark.sql.catalog.{catalog}.* of Spark has",
        )

    def _drop(self, *tables: str) -> list[str]:
        """Drop tables, by whoever makes them where that can be asked; those that may be left."""
        from tidegate.sinks.iceberg.catalog import purge  # noqa: PLC0415 - parsing the DAG needs no catalog

        left = [*tables]
        try:
            if self._is_warm:
                from tidegate.sinks.iceberg.receipts import quoted  # noqa: PLC0415 - it imports pyspark
                from tidegate.spark.session import connect  # noqa: PLC0415

                with connect(self._connect_url(), name="tidegate-doctor") as spark:
                    while left:
                        spark.sql(f"DROP TABLE IF EXISTS {quoted(left[0])} PURGE")
                        del left[0]
            else:  # which finds no quarantine where nothing was rejected
                left = [table for table in tables if not purge(table) and not table.endswith(QUARANTINE)]
        except Exception:
            self.log.exception("not dropped: %s", some(left))
        return left


def topics_of(source: Source, brokers: AdminBrokers) -> tuple[str, ...]:
    """The topics of a source that are there. Raises KafkaError."""
    return source.named or tuple(brokers.match_topics(str(source.pattern), source.exclude))


def longest_gap_s(schedule: str | LagSchedule | None) -> float | None:
    """Seconds of the longest time between two runs; None for a schedule without a bound."""
    if isinstance(schedule, LagSchedule) or schedule in {None, CONTINUOUS}:
        return schedule.max_delay if isinstance(schedule, LagSchedule) else None
    from croniter import croniter  # type: ignore[import-untyped]  # noqa: PLC0415 - in tasks only

    # within a day, which are alike, and across each midnight of a year
    times = croniter(schedule, 0.0)
    within = max(later - earlier for earlier, later in pairwise(times.get_next(float) for _ in range(400)))
    nights = (float(DAY_S * day - 1) for day in range(1, 367))
    across = max(croniter(schedule, at).get_next(float) - croniter(schedule, at).get_prev(float) for at in nights)
    return float(max(within, across))


def packages_found(extra: str) -> Iterator[Finding]:
    """Whether what an extra of this package requires is installed here."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - in tasks only

    found = list[Finding]()
    for line in requires("tidegate") or ():
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": extra}):
            continue
        held = _version(needed.name) or _version(SAME_MODULE.get(needed.name, needed.name))
        if held is None or not needed.specifier.contains(held, prereleases=True):
            finding, how = (broken, "is not installed") if held is None else (doubtful, f"is {held}")
            needs = f"Tidegate {version('tidegate')} needs {needed.specifier or 'it'}"
            says, fix = f"{needed.name} {how} where tasks run; {needs}", f"Run `pip install 'tidegate[{extra}]'` there"
            found.append(finding("packages", needed.name, says, fix))
    yield from found or [sound("packages", f"tidegate[{extra}]")]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def variables_found(pipelines: Iterable[Pipeline]) -> Iterator[Finding]:
    """Whether the Variables of pipelines are read from Airflow's database, in which they are written."""
    from airflow.sdk.configuration import conf  # noqa: PLC0415 - in tasks only
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded  # noqa: PLC0415

    found = []
    if conf.getboolean("core", "multi_team", fallback=False):
        says = "Airflow runs several teams, to whom a Variable of one key may be several, and a pipeline's saved state is one"
        fix = "Run the pipelines in an Airflow without [core] multi_team"
        found.append(broken("variables", "multi_team", says, fix))
    backends = ensure_secrets_backend_loaded()
    for pipeline in pipelines:
        key = cursor_key(pipeline.name)
        if (backend := answering(backends, key)) is not None:
            found.append(of_error("variables", pipeline.name, shadowed(key, f"the task's {backend}")))
    yield from found or [sound("variables", "Airflow")]


def hand_on(context: Context, found: Sequence[Finding], log: Any) -> None:
    """Log what was found, the worst first, and hand it on. Raises AirflowFailException: something is broken."""
    from airflow.sdk._shared.secrets_masker import redact  # noqa: PLC0415 - parsing the DAG needs no masker

    levels = {"broken": log.error, "doubtful": log.warning}
    found = sorted(found, key=lambda each: get_args(State).index(each.state))
    for each in found:
        levels.get(each.state, log.info)("%s", each)
    # their texts alone: a secret may be a word that is in the name of a check
    masked = [replace(each, of=str(redact(each.of)), says=str(redact(each.says)), fix=str(redact(each.fix))) for each in found]
    told, fine = ([each for each in masked if (each.state == "sound") is is_sound] for is_sound in (False, True))
    value = {
        "findings": [asdict(each) for each in told[:MOST]],
        "sound": [[each.check, each.of] for each in fine[:MOST]],  # no tuples, which Airflow keeps as objects
        "left_out": len(told[MOST:]) + len(fine[MOST:]),
    }
    context["ti"].xcom_push(key=FINDINGS, value=value)
    if is_broken(found):
        count = sum(each.state == "broken" for each in found)
        raise AirflowFailException(f"{count} of {len(found)} findings are broken, the first: {found[0]}")
