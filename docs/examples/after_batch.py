"""Counts the payments by hour of what a batch, or a replay, has just changed: in Spark SQL, and by a model of dbt.

The pipeline `payments` loads into `lake.shop.payments`, and nothing has to be set in its file. Its transform keeps each
record's timestamp in a column: `parse_json(records.withColumnRenamed("timestamp", "_timestamp"), ...)`. Put this file beside
your other DAGs, your own SQL into `count`, and leave out the step that you do not need. The model of dbt
reads the rows `where {{ var("changed", "true") }}`.
"""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import Asset, dag, task

PIPELINE, TABLE = "payments", "lake.shop.payments"
PAYMENTS = Asset(TABLE)


@task
def changed(**context: Any) -> str:
    """The rows that this run is for, as a condition of SQL: those of all batches since the last run.

    All rows after a replay, which may have removed some, and in a run that somebody has triggered.
    """
    from tidegate import Ledger, VariableStore, merged  # noqa: PLC0415 - not while Airflow reads the file

    keys = [event.extra.get("key") for event in context["triggering_asset_events"].get(PAYMENTS, ())]
    if not keys or None in keys:
        return "true"
    ledger = Ledger(VariableStore(), PIPELINE)
    rows = [
        f"(_kafka_topic = '{r.topic}' AND _kafka_partition = {r.partition}"
        f" AND _kafka_offset >= {r.from_offset} AND _kafka_offset < {r.until_offset})"
        # batches follow each other, so one range of each partition is left of them
        for r in merged(r for key in keys for r in ledger.saved_range(key).load.nonempty)
    ]
    return " OR ".join(rows) or "false"


@task.pyspark(conn_id="spark_connect_default")
def count(rows: Any, spark: Any = None) -> dict[str, int]:
    """The payments of each hour among these rows."""
    sql = f"SELECT CAST(date_trunc('hour', _timestamp) AS STRING), count(*) FROM {TABLE} WHERE {rows} GROUP BY 1"  # noqa: S608 - numbers, and a topic's name
    return dict(spark.sql(sql).collect())


@dag(schedule=PAYMENTS, max_active_runs=1)
def payments_after_batch() -> None:
    """One run for each batch or replay; for several, where they come faster than it runs."""
    rows = changed()
    count(rows)
    dbt = BashOperator(
        task_id="dbt",
        bash_command='dbt build --select payments_by_hour --vars "$VARS"',  # with cwd, the folder of your project
        env={"VARS": "{{ {'changed': ti.xcom_pull('changed')} | tojson }}"},
        append_env=True,
    )
    rows >> dbt


payments_after_batch()
