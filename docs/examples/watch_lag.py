"""Mails where what was in the topic `payments` at some time is not in its table a quarter of an hour later.

It goes with any pipeline, however its runs start: put its name, one of its topics and its Kafka connection in place of these,
and this file beside your other DAGs. The mail also comes where the pipeline is paused or fails, or where this DAG cannot tell:
once while the pipeline is late, since the next run starts when it has caught up. It goes through the connection `smtp_default`;
any other notifier that can be awaited does as well.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import Connection, dag, task
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

PIPELINE, TOPIC, CONNECTION = "payments", "payments", "kafka_default"
PARTITIONS: tuple[int, ...] = ()
"""Those of the pipeline's `source.assign`; of a pipeline without it none, which are all."""
LATE = {
    "to": "data-on-call@example.com",
    "from_email": "airflow@example.com",
    "subject": f"{PIPELINE} is late",
    "html_content": "What was in the topic at {{ dag_run.logical_date }} is not in the table.",
}


@task
def ends() -> dict[str, int]:
    """The end of each partition now."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - not while Airflow reads the file

    read = offsets()
    # it joins no group
    consumer = Consumer({"group.id": "watch_lag", **Connection.get(CONNECTION).extra_dejson})
    found = PARTITIONS or consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    last = {p: consumer.get_watermark_offsets(TopicPartition(TOPIC, p), timeout=30)[1] for p in found}
    # what has been read beyond the end was of a topic that is gone: the cursor passes that when somebody has put it right
    return {str(p): end if read.get(p, 0) <= end else read[p] + 1 for p, end in last.items()}


@task.sensor(poke_interval=30, timeout=86_400, mode="reschedule")
def committed(until: Any) -> bool:
    """Whether the pipeline's cursor has passed them."""
    read = offsets()
    return all(read.get(int(p), 0) >= end for p, end in until.items())


def offsets() -> dict[int, int]:
    """The offset of each partition that the pipeline reads next."""
    from tidegate import Ledger, VariableStore  # noqa: PLC0415

    return {tp.partition: at for tp, at in Ledger(VariableStore(), PIPELINE).cursor().at.offsets.items() if tp.topic == TOPIC}


@dag(
    schedule="*/5 * * * *",
    max_active_runs=1,
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_LOGICAL_DATE,
        interval=timedelta(minutes=15),
        callback=AsyncCallback(SmtpNotifier, kwargs=LATE),
    ),
)
def payments_watch_lag() -> None:
    """A run is done once the pipeline has read what was there when it started."""
    committed(ends())


payments_watch_lag()
