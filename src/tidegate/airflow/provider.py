"""What `airflow providers list` shows of Tidegate; Airflow finds it by the entry point `apache_airflow_provider`."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Name and description of the distribution. The plugin has an entry point of its own and is not named twice."""
    return {
        "package-name": "tidegate",
        "name": "Tidegate",
        "description": "Kafka offset ranges as an orchestrated, replayable schedule, loaded into Iceberg tables by PySpark.",
    }
