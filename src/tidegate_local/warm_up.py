"""Real loads before the first run, so that the JVM has loaded and compiled what every load needs.

    python -m tidegate_local.warm_up STATE_DIR PROJECT_DIR

`tidegate up` runs them in a process of their own, beside the start of Airflow: one that hangs can be ended, and what pyspark
sets in its process stays out of the caller's.

Rules: nothing of it is in the user's catalog, since its sessions have a catalog of their own in a scratch folder; its topic has
a name that no pattern matches, and is deleted at the end. What a killed warm-up leaves behind, the next one uses and removes.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from tidegate.core.config.names import WARM_UP_TOPIC
from tidegate.core.model.errors import BrokerUnavailable
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.state.jobs import LoadJob, Reading
from tidegate.core.state.receipt import Load
from tidegate.kafka.settings import spark_client
from tidegate.waiting import wait_until
from tidegate_local.platform import WARM_UP, WARM_UP_S, Platform
from tidegate_local.spark_connect import CATALOG, catalog_settings
from tidegate_local.topics import create_topic

PARTITIONS = 4
RECORDS = 250
"""Of each partition and load: a small batch, whose fixed cost is what a warm-up takes away."""
LOADS = 12
"""With twelve, the load of the first run took 1.4 and 1.6 s; with three of four times the records 2.1 and 2.3 s (two cores)."""
SCRATCH_CATALOG = "tidegate_warm_up"


def warm_up(platform: Platform) -> None:
    """Load a few small batches into a scratch table, and leave nothing behind."""
    kafka = {"bootstrap.servers": platform.bootstrap_servers, "client.id": f"tidegate-{WARM_UP}"}
    scratch = platform.state_dir / "spark" / WARM_UP
    shutil.rmtree(scratch, ignore_errors=True)
    (scratch / "warehouse").mkdir(parents=True)
    try:
        create_topic(kafka, WARM_UP_TOPIC, PARTITIONS)
        _load(platform.spark_remote, kafka, _produce(kafka), scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        admin = AdminClient({**kafka, "log_level": 2})  # kept in a variable, since its requests end with it
        admin.delete_topics([WARM_UP_TOPIC])[WARM_UP_TOPIC].result()


def _produce(kafka: Mapping[str, str]) -> dict[int, int]:
    """Fill the topic; returns the first offset of each partition, which is not 0 where an earlier warm-up was killed."""
    first: dict[int, int] = {}
    value = json.dumps({"id": 1, "name": "a", "happened": "2013-01-01T05:00:00Z", "amount": 0.5})

    def delivered(error: ck.KafkaError | None, message: Any) -> None:
        if error is None:
            first.setdefault(message.partition(), message.offset())  # acknowledged in order

    producer = ck.Producer({**kafka, "enable.idempotence": True, "linger.ms": 50, "log_level": 3})

    def partitions() -> int:
        return len(producer.list_topics(WARM_UP_TOPIC, timeout=WARM_UP_S).topics[WARM_UP_TOPIC].partitions)

    if not wait_until(lambda: partitions() > 0, WARM_UP_S, poll_s=0.1):  # a topic that was just made is not known at once
        raise BrokerUnavailable("the topic of the warm-up has no partitions", fix="See the broker's log")
    count = partitions()  # not PARTITIONS where a topic of that name was there before
    for partition in range(count):
        for _ in range(LOADS * RECORDS):
            producer.produce(WARM_UP_TOPIC, value, key="a", partition=partition, on_delivery=delivered)
    if producer.flush(WARM_UP_S) or len(first) != count:
        raise BrokerUnavailable("not every record of the warm-up was acknowledged", fix="See the broker's log")
    return first


def _load(remote: str, kafka: Mapping[str, str], first: Mapping[int, int], scratch: Path) -> None:
    from tidegate.spark.load import load_range  # noqa: PLC0415 - only the process of the warm-up needs Spark's client
    from tidegate.spark.session import connect  # noqa: PLC0415

    options = spark_client(kafka, connection=WARM_UP, client_id=f"tidegate-{WARM_UP}").settings
    for number in range(LOADS):
        ranges = (OffsetRange(WARM_UP_TOPIC, p, at + number * RECORDS, at + (number + 1) * RECORDS) for p, at in first.items())
        load = Load(pipeline=WARM_UP, seq=number + 1, run_id=WARM_UP, ranges=tuple(ranges))
        job = LoadJob(
            load=load, transform="rows:rows", table=f"{SCRATCH_CATALOG}.{CATALOG}.rows", reading=Reading(kafka_options=options)
        )
        with connect(remote, name=WARM_UP) as session:
            for key, value in catalog_settings(SCRATCH_CATALOG, scratch).items():
                session.conf.set(key, value)
            load_range(session, job, spark_jobs=Path(__file__).parent / "warm_up_jobs")


if __name__ == "__main__":
    warm_up(Platform(Path(sys.argv[1]), Path(sys.argv[2])))
