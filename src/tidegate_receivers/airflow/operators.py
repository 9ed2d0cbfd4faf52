"""The tasks of a receiver's DAG. They read Airflow's context, call the core and `Serve`, log, and hand on.

What travels between them is where each instance runs: JSON without secrets. Connections are read by the task that needs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseOperator, BaseSensorOperator, Context, RetryDecision, RetryPolicy
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSkipException,
)

from tidegate.airflow.connections import client_settings, get_connection
from tidegate.airflow.metrics import send
from tidegate.airflow.store import VariableStore
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError
from tidegate.core.model.times import CLOCKS_APART_MS
from tidegate.kafka.settings import planning_client
from tidegate.views.metrics import RECEIVER
from tidegate_receivers.airflow.serving import Buffers, Order, PipelineBehind, Serve, serve
from tidegate_receivers.airflow.workers import live_workers
from tidegate_receivers.config.receiver import Receiver
from tidegate_receivers.rules.placement import Assigned, Live, are_ready, assign, mapped, on_queues, sharing
from tidegate_receivers.runtime.backpressure import Heard

LOOK_S = 10
"""How often a run that waits looks for workers, and an instance whether its DAG is paused."""
FLAGS_S = 2
"""How often instances tell each other of their buffers, where one that is full stops all."""
FIRST_DELAY_S, LONGEST_DELAY_S = 5, 60
"""Before an instance that ended too early is started again."""
ANSWER_S = 5.0
"""The longest wait for a broker's answer about the topic's backlog: an instance that ends may have to wait for it."""
NOTHING = dict.fromkeys(("buffer", "records", "bytes", "blocks", "restarts", "refused", "throttled_s", "undelivered"), 0)
"""How an instance does that has not served."""
FAILED = ("failed", "up_for_retry")
"""The states of the task of an instance that failed, or is failing."""
HOST, STATUS = "host", "status"
"""The XComs of a mapped task that tell where its instance runs, and how it does."""


class WaitForWorkers(BaseSensorOperator):
    """Waits until the configured share of the expected workers is up, or the waiting time is over.

    Between two looks it holds neither a process nor a slot.
    """

    ui_color = "#dbe9f6"

    def __init__(self, *, receiver: Receiver, live: Callable[[], Live] = live_workers, **kwargs: Any) -> None:
        super().__init__(mode="reschedule", poke_interval=LOOK_S, **kwargs)
        self.receiver = receiver
        self.live = live

    def poke(self, context: Context) -> bool:
        """Whether the run goes on."""
        wanted = self.receiver.workers
        live = on_queues(self.live(), wanted.queues)
        up = f"{len(live)} of {wanted.expected} workers on {', '.join(wanted.queues)}"
        if are_ready(live, expected=wanted.expected, share=wanted.share):
            self.log.info("%s are up", up)
            return True
        began = context["dag_run"].start_date
        waited_s = 0.0 if began is None else time.time() - began.timestamp()
        if waited_s >= wanted.wait:
            self.log.warning("%s are up after %.0f s: the run goes on with them", up, waited_s)
            return True
        self.log.info("%s are up: waiting for %.0f s at most", up, wanted.wait - waited_s)
        return False


class PlaceOperator(BaseOperator):
    """Decides where each instance runs, and until when.

    Args:
        receiver: what its file holds.
        live: the live workers, asked for in the task.
    """

    ui_color = "#dbe9f6"

    def __init__(self, *, receiver: Receiver, live: Callable[[], Live] = live_workers, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.receiver = receiver
        self.live = live

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Place every instance; one that failed in the run before this one, where there is another host, elsewhere."""
        receiver, queues = self.receiver, self.receiver.workers.queues
        failed = self._failed(context)
        for instance, host in failed.items():
            self.log.warning("instance %d failed on %s in the last run", instance, host)
        placed = assign(
            receiver.preferred,
            on_queues(self.live(), queues),
            queues=queues,
            failed=failed,
            until_s=time.time() + receiver.lease + receiver.overlap_s,
        )
        for each in placed:
            self.log.info("instance %s, queue %s", each, each.queue)
        return [each.to_json() for each in placed]

    def _failed(self, context: Context) -> dict[int, str]:
        """The host of each instance that failed in the run before this one."""
        ti, tasks = context["ti"], self.receiver.workers.tasks
        last = ti.get_previous_dagrun()
        told = None if last is None else ti.xcom_pull(task_ids=self.task_id, run_id=last.run_id)
        if last is None or not told:
            return {}
        placed = [Assigned(**item) for item in told]
        names = list(tasks.values())
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=names, run_ids=[last.run_id]).get(last.run_id, {})
        failed = {each.instance for each, task_id, index in mapped(placed, tasks) if states.get(f"{task_id}_{index}") in FAILED}
        ran = ti.xcom_pull(task_ids=names, key=HOST, run_id=last.run_id) if failed else []
        hosts = {each.instance: each.host for each in placed} | {item["instance"]: item["host"] for item in filter(None, ran)}
        return {instance: hosts[instance] for instance in sorted(failed)}


class OnQueueOperator(BaseOperator):
    """The instances that were placed on one queue. Airflow maps a task over all that another one returns, on one queue."""

    ui_color = "#dbe9f6"

    def __init__(self, *, on: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.on = on

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Those of the queue; the mapped task is skipped where there is none."""
        return [item for item in context["ti"].xcom_pull(task_ids="place") if item["queue"] == self.on]


class ReceiveOperator(BaseOperator):
    """Runs one instance until its lease ends.

    Ended from outside, it stops accepting and delivers what it has accepted. Airflow ends the process five seconds after its
    task was marked or cleared, whatever it still does: nothing that was acknowledged is lost by that. While its DAG is paused,
    the instance does not run; unpaused, it goes on until its lease ends.

    Args:
        placed: where the instance runs, and until when, as `Assigned.to_json`.
        receiver: what its file holds.
        behind: the pipeline of its back-pressure; None: there is none, or its file is not valid.
        serving: what runs it.
    """

    ui_color = "#cfe3cf"

    def __init__(
        self,
        *,
        placed: dict[str, Any],
        receiver: Receiver,
        behind: Pipeline | None = None,
        serving: Serve = serve,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.placed = placed
        self.receiver = receiver
        self.behind = behind
        self.serving = serving
        self._ended = self._paused = False
        self._end: Callable[[], object] | None = None
        self._status: Mapping[str, Any] = {}

    @property
    def label(self) -> str:
        """The instance and its host, for the UI."""
        return str(Assigned(**self.placed))

    def execute(self, context: Context) -> dict[str, Any]:
        """Receive; the report of what was received.

        Raises:
            AirflowRescheduleException: the DAG was paused; the task goes on when it is unpaused.
            AirflowSkipException: it was paused until after its lease.
            AirflowFailException: the lease is over, and another try cannot help.
            AirflowException: the task was ended from outside; another try goes on.
            TidegateError: the instance cannot run.
        """
        placed = Assigned(**self.placed)
        # no lease is longer than this, whatever clock it was placed by
        placed = replace(placed, until_s=min(placed.until_s, time.time() + self.receiver.lease + self.receiver.overlap_s))
        if time.time() >= placed.until_s:
            over = "the lease is over, and the next run receives; to begin a new one in this run, clear its task `place`"
            raise AirflowSkipException(over) if context.get("task_reschedule_count") else AirflowFailException(over)
        host = socket.gethostname()
        context["ti"].xcom_push(key=HOST, value={"instance": placed.instance, "host": host})
        try:
            kafka = self._producer()
            downstream = self._downstream(kafka, context)
            order = Order(
                self.receiver,
                placed.instance,
                host,
                until_s=placed.until_s,
                producer=kafka,
                token=self._token(),
                downstream=downstream,
            )
            report = dict(asyncio.run(self._serve(order, context)))
        except Exception as error:  # it is tried again for the whole lease, so its trouble has to be seen where instances are
            self._note({**NOTHING, **self._status, "state": "failed", "last_error": str(error)})
            with contextlib.suppress(Exception):  # an API that is away hides no error
                context["ti"].xcom_push(key=STATUS, value=dict(self._status))
            raise
        self._tell(", ".join(f"{name} {value}" for name, value in report.items()))
        if self._ended:
            raise AirflowException("the instance was ended before its lease was over")
        if self._paused:
            again = datetime.now(UTC) + timedelta(seconds=LOOK_S)
            raise AirflowRescheduleException(again)  # type: ignore[no-untyped-call]
        return report

    async def _serve(self, order: Order, context: Context) -> Mapping[str, Any]:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self._end = lambda: loop.call_soon_threadsafe(stop.set)
        if self._ended:  # before there was anything to end
            stop.set()
        beside = asyncio.create_task(self._look_at_airflow(stop, context))
        try:
            return await self.serving(order, stop=stop, tell=self._tell, watch=self._note)
        finally:
            self._end = None
            beside.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beside

    def _tell(self, line: str) -> None:
        """Log a line. The log is a pipe to the supervising process: when that was killed, the instance goes on without."""
        with contextlib.suppress(OSError):
            self.log.info("%s", line)

    def _note(self, status: Mapping[str, Any]) -> None:
        placed = self.placed["instance"]
        self._status = {**status, "instance": placed, "at": datetime.now(UTC).isoformat(timespec="milliseconds")}

    def _gauge(self) -> None:
        from airflow.sdk.observability import stats  # noqa: PLC0415 - parsing the DAG needs no metrics

        values = {f"receiver.{what}": self._status.get(what) for what in RECEIVER}
        send(stats, values, receiver=self.receiver.name, instance=str(self.placed["instance"]))

    async def _look_at_airflow(self, stop: asyncio.Event, context: Context) -> None:
        """Show there how the instance does, and stop it when its DAG is paused.

        Airflow lets the running tasks of a paused DAG go on, which would be for the rest of the lease. Nor does it end a task
        whose supervising process was killed, and it starts the next try beside it.
        """
        ti, supervisor = context["ti"], os.getppid()
        pause_s = FLAGS_S if self.receiver.backpressure.policy == "watermark" else LOOK_S
        while not stop.is_set():
            await asyncio.sleep(pause_s)
            if not self.receiver.overlap_s and os.getppid() != supervisor:  # two readers would land records twice
                self._ended = True
                stop.set()
                return
            try:
                if self._status:
                    self._gauge()
                    await asyncio.to_thread(ti.xcom_push, STATUS, dict(self._status))
                dag = await asyncio.to_thread(ti.get_dag, ti.dag_id)
            except Exception as error:  # noqa: BLE001 - an API that is away for a moment ends no receiver
                self._tell(f"Airflow cannot be asked whether the DAG is paused: {type(error).__name__}")
                continue
            if dag.is_paused:
                self._tell("the DAG is paused: the instance stops accepting")
                self._paused = True
                stop.set()

    def _downstream(self, kafka: Mapping[str, str], context: Context) -> Callable[[], Heard] | None:
        from tidegate.kafka.brokers import AdminBrokers  # noqa: PLC0415 - parsing the DAG needs no Kafka client

        receiver = self.receiver
        if receiver.backpressure.policy == "static":
            return None
        if self.behind is None:
            self.log.warning("pipeline %s: its file is not valid; the safe rate holds", receiver.backpressure.pipeline)
            return None
        brokers = AdminBrokers(kafka, timeout_s=ANSWER_S)
        until_s = self.placed["until_s"]
        told = self._told(context) if receiver.backpressure.policy == "watermark" else dict
        return PipelineBehind(
            pipeline=self.behind,
            topic=receiver.topic,
            store=VariableStore(),
            brokers=brokers,
            instances=lambda now_s: sharing(receiver.instances, now_s, until_s, receiver.lease, receiver.overlap_s),
            buffers=told,
        )

    def _told(self, context: Context) -> Callable[[], Buffers]:
        """What reads how full the buffers are: of this run's instances, and of the run before, whose lease may go on."""
        ti, run_ids = context["ti"], [context["run_id"]]
        if (last := ti.get_previous_dagrun()) is not None:
            run_ids.append(last.run_id)
        tasks = list(self.receiver.workers.tasks.values())

        def buffers() -> Buffers:
            told: dict[str, tuple[float, float]] = {}
            for run_id in run_ids:
                for status in filter(None, ti.xcom_pull(task_ids=tasks, key=STATUS, run_id=run_id) or ()):
                    age_s = (datetime.now(UTC) - datetime.fromisoformat(status["at"])).total_seconds()
                    if age_s > -CLOCKS_APART_MS / 1000:
                        told[f"{run_id} {status['instance']}"] = status["buffer"], max(0.0, age_s)
            return told

        return buffers

    def _producer(self) -> Mapping[str, str]:
        client_id = f"tidegate-{self.receiver.name}-receive"
        return client_settings(self.receiver.connection, client_id, planning_client, self.log)

    def _token(self) -> str | None:
        if self.receiver.token is None:
            return None
        token: str | None = get_connection(self.receiver.token, expected="one whose password is the token").password
        if not token:
            raise ConfigError(
                f"connection {self.receiver.token} has no password, which is the token of receiver {self.receiver.name}",
                fix="Set its password to the token, or remove `token` from the receiver's file",
                connection=self.receiver.token,
            )
        return token

    def on_kill(self) -> None:
        """Stop accepting, and deliver what was accepted."""
        self._ended = True
        if self._end is not None:
            self._end()


class RetryUntilTheLeaseEnds(RetryPolicy):
    """Every error is tried again, since senders wait: after 5 s at first, and then ever later, up to a minute."""

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """The decision for one failed try; Airflow calls it in the task's process, and not for AirflowFailException."""
        del exception, max_tries, context
        delay_s = min(FIRST_DELAY_S * 2 ** min(try_number - 1, 10), LONGEST_DELAY_S)
        return RetryDecision.retry(delay=timedelta(seconds=delay_s), reason=f"trying again in {delay_s} s")
