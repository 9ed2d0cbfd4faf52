"""Tidegate's Airflow plugin, which Airflow finds by the package's entry point `airflow.plugins`.

Airflow refuses a second plugin of the same name: no file of a plugins folder may import this class.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from tidegate.airflow import notes
from tidegate.airflow.declared import PageLink
from tidegate.ui import BUNDLE, BUNDLE_URL, NAME, PREFIX


class TidegatePlugin(AirflowPlugin):
    """The listener that makes missing pools and writes the notes of DAG runs, and the pages of Airflow's UI with links to them.

    The loader of Airflow's UI keeps one function by each name, and runs an address once: so each page has its own of both.
    """

    name = NAME
    listeners = [notes]  # noqa: RUF012 - as Airflow declares it
    react_apps = (
        [
            {"name": "Tidegate", "destination": "nav", "url_route": "tidegate", "bundle_url": f"{BUNDLE_URL}?app=nav"},
            {"name": "Tidegate ranges", "destination": "dag", "url_route": "ranges", "bundle_url": f"{BUNDLE_URL}?app=dag"},
            {"name": "Tidegate run", "destination": "dag_run", "url_route": "range", "bundle_url": f"{BUNDLE_URL}?app=run"},
        ]
        if BUNDLE.is_file()  # which a checkout builds: without it, each page would be an error
        else []
    )
    operator_extra_links = [PageLink()] if react_apps else []

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The routes. Only the API server asks for them: no other process imports what they need."""
        from tidegate.ui.routes import make_app  # noqa: PLC0415 - as above

        return [{"app": make_app(), "url_prefix": PREFIX, "name": NAME}]
