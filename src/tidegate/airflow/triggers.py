"""The trigger of a pipeline that is scheduled by lag: it runs in Airflow's triggerer, as the watcher of an asset of its own.

Three rules, since Airflow shows no failure of a trigger that an asset owns:

- it never returns and never raises: Airflow would start it again a second later, for ever;
- it never blocks the event loop, which it shares with every other trigger of the process: brokers are asked by
  `tidegate.kafka.ends`, Airflow by messages that are awaited, and modules that take long to import are imported in a thread;
- it says once what is wrong, and once that it is right again.

An event is a hint: the run that it starts plans by itself, and skips where there is nothing to read.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.observability import stats
from airflow.sdk import Asset, AssetWatcher, Connection
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetDRCount, GetVariable, VariableResult
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from tidegate.airflow.metrics import send
from tidegate.airflow.store import asking_airflow
from tidegate.core.config.pipeline import LagSchedule, Pipeline, Source
from tidegate.core.model.errors import ConfigError, StateCorrupt, StateError, StateNewer, StateUnavailable, TidegateError
from tidegate.core.model.ranges import offsets_to_json
from tidegate.core.model.times import utc
from tidegate.core.planning.lag_trigger import ABSENT_S, FAULT_S, Due, Watch
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import cursor_from, cursor_key
from tidegate.kafka.settings import planning_client

if TYPE_CHECKING:
    from tidegate.kafka.ends import EndsReading, Subscription

MOST_ENDS = 500
"""Partitions whose ends an event carries; it is stored in Airflow's database."""
LONGEST_PAUSE_S = 60.0
ACTIVE = ["queued", "running"]


def lag_asset(pipeline: Pipeline, schedule: LagSchedule) -> Asset:
    """The asset whose events start the runs of a pipeline. It is no table: nothing writes it but its watcher."""
    trigger = LagTrigger(pipeline.name, _source_to_json(pipeline.source), asdict(schedule))
    return Asset(name=f"tidegate.{pipeline.name}", watchers=[AssetWatcher(name=f"{pipeline.name}_lag", trigger=trigger)])


class LagTrigger(BaseEventTrigger):
    """Fires when a pipeline has something to do.

    Airflow tells triggers apart by their arguments, so the pipeline's name is one of them. `source` has the settings of its
    source that say what to watch, and `schedule` those of its schedule, durations in seconds.
    """

    def __init__(self, pipeline: str, source: Mapping[str, Any], schedule: Mapping[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline = pipeline
        self.source = dict(source)
        self.schedule = dict(schedule)
        self._watch = Watch(rule=LagSchedule(**self.schedule))
        self._held = ExitStack()
        self._damage: StateError | None = None
        self._trouble: tuple[frozenset[str], float] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The arguments, by which the triggerer makes it."""
        kwargs = {"pipeline": self.pipeline, "source": self.source, "schedule": self.schedule}
        return f"{LagTrigger.__module__}.{LagTrigger.__qualname__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """An event whenever a run has to start; without end."""
        pause_s = 1.0
        while True:
            try:
                subscription = await self._subscribe()
                while True:
                    event = await self._looked_at(await subscription.next())
                    pause_s = 1.0
                    if event is not None:
                        yield event
            except Exception as error:  # noqa: BLE001 - Airflow would start it again without a pause
                self._tell(error)
            with suppress(Exception):
                await self.cleanup()
            await asyncio.sleep(random.uniform(pause_s / 2, pause_s))  # noqa: S311 - jitter
            pause_s = min(LONGEST_PAUSE_S, pause_s * 2)

    async def cleanup(self) -> None:
        """Leave the poller, which ends with its last user."""
        self._held.close()

    async def _subscribe(self) -> Subscription:
        ends = await asyncio.to_thread(_loaded)
        source = _source_from_json(self.source)
        poller = ends.watching(source.connection, lambda: _kafka_settings(source.connection), source, self._watch.rule.poll)
        subscription: Subscription = self._held.enter_context(poller)
        return subscription

    async def _looked_at(self, reading: EndsReading) -> TriggerEvent | None:
        """The event that follows from what the brokers have answered."""
        now_s = time.monotonic()
        trouble: TidegateError | None = reading.error
        if trouble is None:
            self._watch = self._watch.observed(reading.ends, now_s)
            self._send(polled=time.time())
        else:
            self._watch = self._watch.faulty(now_s, ABSENT_S if trouble.retryable else FAULT_S)
        try:
            await self._ask_airflow(now_s)
        except StateUnavailable as error:
            self._tell(error)
            return None
        except StateError as error:
            trouble = error
        self._tell(trouble or self._damage)
        due = self._watch.due(now_s)
        if due is None or (due.reason != "fault" and trouble is not None and trouble.retryable):
            return None
        self._watch = self._watch.fired(now_s)
        self._send(events=1)
        event: TriggerEvent = TriggerEvent(self._payload(due, now_s))  # type: ignore[no-untyped-call]
        return event

    async def _ask_airflow(self, now_s: float) -> None:
        """Read the cursor, and count the active runs, where the watch wants to know.

        Raises StateUnavailable: Airflow cannot say. StateCorrupt, StateNewer: the cursor is damaged, or a newer version has
        written it. It counts as missing: a run has to start, which fails of it where people look. The error is remembered
        until the next look at the cursor.
        """
        if self._watch.wants_cursor(now_s):
            try:
                cursor = await _cursor(self.pipeline)
            except (StateCorrupt, StateNewer) as damage:
                self._damage = damage
                self._watch = self._watch.read(None, None, now_s, damaged=True)
                raise
            self._damage = None
            planned_s = None
            if cursor is not None and cursor.fired_at_ms is not None:
                planned_s = now_s - (time.time() - cursor.fired_at_ms / 1000)
            self._watch = self._watch.read(cursor, planned_s, now_s)
        if self._watch.came_to_nothing(now_s):
            active = await _active_runs(self.pipeline)
            self._watch = self._watch.waiting(now_s) if active else self._watch.rearmed()
        self._send(lag=self._watch.lag)

    def _payload(self, due: Due, now_s: float) -> dict[str, Any]:
        """What the asset's event says: for people, and for nobody to believe."""
        watch = self._watch
        known = due.since_s is not None and math.isfinite(due.since_s)  # less than 0: before this machine was started
        most = sorted(watch.ends, key=watch.lag_of, reverse=True)[:MOST_ENDS]
        return {
            "pipeline": self.pipeline,
            "reason": due.reason,
            "lag": due.lag,
            "oldest": utc(int((time.time() - (now_s - due.since_s)) * 1000)) if known and due.since_s is not None else None,
            "ends": offsets_to_json({tp: watch.ends[tp] for tp in most}),
        }

    def _send(self, **values: float) -> None:
        send(stats, {f"trigger.{name}": value for name, value in values.items()}, pipeline=self.pipeline)

    def _tell(self, error: Exception | None) -> None:
        """Count an error, and log a line where the first of its kind comes, or none is left."""
        now_s, before = time.monotonic(), self._trouble
        if error is None:
            self._trouble = None
            if before is not None:
                self.log.info("pipeline %s: its lag is known again, after %.0f s", self.pipeline, now_s - before[1])
            return
        self._send(errors=1)
        kind = type(error).__name__
        kinds, since_s = before or (frozenset(), now_s)
        if kind not in kinds:
            self._trouble = kinds | {kind}, since_s
            self.log.warning("pipeline %s: its lag is not known: %s: %s", self.pipeline, kind, error)


def _loaded() -> Any:
    """What takes longer than an event loop may: the Kafka client, and Airflow's list of metrics, which the first one loads."""
    stats.incr("tidegate.trigger.errors", 0)
    return import_module("tidegate.kafka.ends")


async def _cursor(pipeline: str) -> Cursor | None:
    """The saved cursor; None where there is none. Raises as `cursor_from`; StateUnavailable: Airflow cannot say."""
    key = cursor_key(pipeline)
    with asking_airflow("read", key):
        # not `Variable.get`, which reports a failed read and a missing key alike
        answer = await task_runner.SUPERVISOR_COMMS.asend(GetVariable(key=key))
    if isinstance(answer, ErrorResponse) and answer.error == ErrorType.VARIABLE_NOT_FOUND:
        return None
    if not isinstance(answer, VariableResult) or answer.value is None:
        raise StateUnavailable(f"Airflow could not read the Variable {key}: {answer}", fix="See the triggerer's log", key=key)
    return await asyncio.to_thread(cursor_from, answer.value, pipeline)


async def _active_runs(dag_id: str) -> int:
    """How many runs of a DAG are queued or running. Raises StateUnavailable: Airflow cannot say."""
    with asking_airflow("count the runs of", dag_id):
        answer: Any = await task_runner.SUPERVISOR_COMMS.asend(GetDRCount(dag_id=dag_id, states=ACTIVE))
        return int(answer.count)


async def _kafka_settings(connection_id: str) -> Mapping[str, str]:
    """The settings of a client that only asks for ends. Raises ConfigError: there is no such connection, or it is not valid."""
    try:
        connection = await Connection.async_get(connection_id)
        extra = await connection.aextra_dejson()
    except Exception as error:
        raise ConfigError(
            f"Airflow has no connection {connection_id} ({type(error).__name__})",
            fix="Add it under Admin > Connections, as a Kafka connection",
            connection=connection_id,
        ) from error
    return planning_client(extra, connection=connection_id, client_id="tidegate-trigger").settings


WATCHED = ("topics", "pattern", "exclude", "assign", "connection", "isolation_level", "on_deleted")
"""The settings of a source that say what to watch."""


def _source_to_json(source: Source) -> dict[str, Any]:
    held = {name: getattr(source, name) for name in WATCHED}
    lists = {name: list(value) for name, value in held.items() if isinstance(value, tuple)}
    assign = None if source.assign is None else {topic: list(numbers) for topic, numbers in source.assign.items()}
    return {**held, **lists, "assign": assign}


def _source_from_json(value: Mapping[str, Any]) -> Source:
    lists = {name: tuple(held) for name, held in value.items() if isinstance(held, list)}
    assign = value["assign"] and {topic: tuple(numbers) for topic, numbers in value["assign"].items()}
    return Source(**{**value, **lists, "assign": assign})
