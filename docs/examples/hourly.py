"""Counts the payments of an hour once the hour is complete, and again when late records or a replay have changed it.

The pipeline `payments` loads into `lake.shop.payments`, and its file has `announce: {}`. Its transform keeps each record's
timestamp in a column: `parse_json(records.withColumnRenamed("timestamp", "_timestamp"), ...)`. Put this file beside your other
DAGs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Asset, PartitionedAssetTimetable, dag, task

PIPELINE, CATALOG, TABLE = "payments", "lake", "shop.payments"


@task
def count(**context: Any) -> dict[str, Any]:
    """Read exactly the rows of the hour that this run is for."""
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - not while Airflow reads the file

    begin = datetime.fromisoformat(context["dag_run"].partition_key).replace(tzinfo=UTC)
    until = begin + timedelta(hours=1)
    rows = (
        load_catalog(CATALOG)
        .load_table(TABLE)
        .scan(
            row_filter=f"_timestamp >= '{begin.isoformat()}' AND _timestamp < '{until.isoformat()}'",
            selected_fields=("_timestamp",),
        )
    )
    return {"hour": begin.isoformat(), "payments": len(rows.to_arrow())}


@dag(schedule=PartitionedAssetTimetable(assets=Asset(f"tidegate/{PIPELINE}/hours")), max_active_runs=4)
def payments_hourly() -> None:
    """One run for each announced hour."""
    count()


payments_hourly()
