"""Receiver in, DAG out: `wait_for_workers -> place -> receive`, the last one mapped over the instances.

Runs of a receiver that listens overlap: the next one starts when the lease of the last one ends, and the last one goes on for
`overlap` seconds, so that somebody listens while the next one places its instances. Where two at a time would land records
twice (a file, a stream that is connected to), the next run starts after the last one has ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import yaml
from airflow.sdk import DAG, BaseOperator, DeltaTriggerTimetable

from tidegate.airflow.dags import EPOCH
from tidegate.beside import Pipelines
from tidegate.core.config.pipeline import Pipeline
from tidegate_receivers.airflow.operators import (
    FIRST_DELAY_S,
    OnQueueOperator,
    PlaceOperator,
    ReceiveOperator,
    RetryUntilTheLeaseEnds,
    WaitForWorkers,
)
from tidegate_receivers.airflow.serving import Serve, serve
from tidegate_receivers.airflow.workers import live_workers
from tidegate_receivers.config.receiver import Receiver
from tidegate_receivers.rules.placement import Live

MARGIN_S = 60
"""Seconds for what a task does before and after its lease."""
OTHER_TASKS = 4
"""Tasks that a run may have at the same time beside its instances."""


def dags_of(receiver: Receiver, source: str, pipelines: Pipelines) -> list[DAG]:
    """The DAG of a receiver's file, with the pipeline of its back-pressure."""
    behind = next((p for file, p in pipelines.items() if file.stem == receiver.backpressure.pipeline), None)
    return [receiver_dag(receiver, behind=behind if isinstance(behind, Pipeline) else None, source=source)]


def receiver_dag(
    receiver: Receiver,
    *,
    behind: Pipeline | None = None,
    source: str = "",
    live: Callable[[], Live] = live_workers,
    serving: Serve = serve,
) -> DAG:
    """The DAG of one receiver.

    Args:
        receiver: what its file holds.
        behind: the pipeline of its back-pressure; None: there is none, or its file is not valid.
        source: the file's YAML, for the docs page in the UI.
        live: the live workers, asked for in tasks.
        serving: what runs an instance.
    """
    lease_s = receiver.lease + receiver.overlap_s
    ends_s = lease_s + receiver.drain + MARGIN_S
    dag = DAG(
        dag_id=receiver.dag_id,
        description=receiver.description or f"Lands {receiver} in topic {receiver.topic}",
        doc_md=_docs(receiver, source),
        schedule=DeltaTriggerTimetable(timedelta(seconds=receiver.lease)) if receiver.overlap_s else "@continuous",
        start_date=EPOCH,
        catchup=False,
        auto_register=False,  # one that turns out not to be valid must not be found by Airflow
        max_active_runs=2 if receiver.overlap_s else 1,
        max_active_tasks=receiver.instances + OTHER_TASKS,
        dagrun_timeout=timedelta(seconds=receiver.workers.wait + ends_s + MARGIN_S),
        tags=["tidegate", "receiver", *receiver.tags],
        default_args={
            "retries": math.ceil(lease_s / FIRST_DELAY_S),
            "retry_policy": RetryUntilTheLeaseEnds(),
            # of a task whose process was killed: it raises nothing that the policy could look at
            "retry_delay": timedelta(seconds=FIRST_DELAY_S),
        },
    )
    mapped = receiver.workers.tasks
    with dag:
        place = PlaceOperator(task_id="place", receiver=receiver, live=live)
        WaitForWorkers(task_id="wait_for_workers", receiver=receiver, live=live) >> place
        for queue, task_id in mapped.items():
            placed: BaseOperator = place
            if len(mapped) > 1:
                placed = OnQueueOperator(task_id=f"on_{queue}", on=queue)
                place >> placed
            ReceiveOperator.partial(
                task_id=task_id,
                receiver=receiver,
                behind=behind,
                serving=serving,
                queue=queue,
                pool=receiver.workers.pool,
                execution_timeout=timedelta(seconds=ends_s),
                map_index_template="{{ task.label }}",
            ).expand(placed=placed.output)
    return dag


def _docs(receiver: Receiver, source: str) -> str:
    return f"""\
### {receiver.name}
{receiver.description}

Lands `{receiver}` in the topic `{receiver.topic}`.

| task | what it does | when it is cleared |
|---|---|---|
| wait_for_workers | waits for the workers that may run instances | waits again |
| place | decides where each instance runs, and until when | begins a new lease |
| receive | one instance each, until its lease ends | goes on until its lease ends |

Pause the DAG to stop receiving: within seconds the instances stop accepting, and deliver what they have accepted. Unpaused,
they go on.

```yaml
{source or yaml.safe_dump({"kind": receiver.kind, "topic": receiver.topic})}
```
"""
