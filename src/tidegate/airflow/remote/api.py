"""Airflow's public REST API (v2), as far as a command, a test or a demo needs it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any
from urllib.parse import quote

import httpx

from tidegate.airflow.remote.client import RestClient
from tidegate.core.config.names import PARSED
from tidegate.core.model.errors import PlatformError
from tidegate.waiting import wait_until

FINISHED = frozenset({"success", "failed"})
BASE_URL = "AIRFLOW__API__BASE_URL"


class AirflowApi(RestClient):
    """What can be asked of one Airflow, and done in it; made and closed as a `RestClient`.

    with platform.api() as api:
        run_id = api.trigger("flights", {"max_records": 4000})
        print(api.wait_run("flights", run_id, timeout_s=60)["state"])
    """

    def health(self) -> dict[str, Any]:
        """The health of the database, the scheduler and the DAG processor; needs no token."""
        return dict(self._send("GET", "/api/v2/monitor/health"))

    def task_api_answers(self) -> bool:
        """Whether the API of tasks answers; needs no token. The server builds it for its first request, which takes seconds."""
        return "ok" in dict(self._send("GET", "/execution/health/ping"))

    def dags(self) -> list[dict[str, Any]]:
        """All DAGs, paused ones too."""
        return self.pages("/dags", "dags")

    def wait_dag(self, dag_id: str, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """The DAG, once the DAG processor has read it.

        Raises PlatformError: it is not there in time; tells the import errors, which are the usual reason.
        """
        dags: list[dict[str, Any]] = []

        def is_there() -> bool:
            dag = self.find(f"/dags/{_part(dag_id)}")
            if dag is not None and not dag["is_stale"]:
                dags.append(dag)
            return bool(dags)

        if wait_until(is_there, timeout_s, poll_s=0.5):
            return dags[0]
        errors = "; ".join(f"{error['filename']}: {_last_line(error['stack_trace'])}" for error in self.import_errors())
        raise PlatformError(
            f"Airflow has no DAG {dag_id} after {timeout_s:.0f} s ({errors or 'no import errors'})",
            fix="Run `tidegate check`, and see the log of the DAG processor",
            dag_id=dag_id,
        )

    def import_errors(self) -> list[dict[str, Any]]:
        """What the DAG processor could not read: `filename`, `stack_trace`, `timestamp`, ..."""
        return self.pages("/importErrors", "import_errors")

    def unpause(self, dag_id: str) -> None:
        """Let the DAG's runs start."""
        if self.dag(dag_id) is None:
            raise PlatformError(f"Airflow has no DAG {dag_id} yet", fix=PARSED, dag_id=dag_id)
        self.patch(f"/dags/{_part(dag_id)}", {"is_paused": False})

    # ---- runs

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, *, run_id: str | None = None) -> str:
        """Start a run; its run id, which is made like Airflow's own when none is given."""
        # named here, so that a request that is repeated starts no second run
        named = run_id or f"manual__{datetime.now(UTC).isoformat()}_{token_hex(4)}"
        body: dict[str, Any] = {"logical_date": None, "conf": dict(conf or {}), "dag_run_id": named}
        try:
            self.post(f"/dags/{_part(dag_id)}/dagRuns", body)
        except PlatformError as error:
            if run_id is not None or not _may_be_done(error, httpx.codes.CONFLICT):  # nobody else has the name made here
                raise
        return named

    def dag(self, dag_id: str) -> dict[str, Any] | None:
        """One DAG: `is_paused`, ...; None where Airflow does not know it."""
        return self.find(f"/dags/{_part(dag_id)}")

    def newest_runs(self, dag_id: str, count: int) -> list[dict[str, Any]]:
        """The last runs of the DAG, the newest first."""
        listing = self.get(f"/dags/{_part(dag_id)}/dagRuns", order_by="-run_after", limit=count)
        return [dict(run) for run in listing["dag_runs"]]

    def dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """All runs of the DAG, the oldest first."""
        return self.pages(f"/dags/{_part(dag_id)}/dagRuns", "dag_runs", order_by="run_after")

    def dag_run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """One run: `state`, `queued_at`, `start_date`, `end_date`, `conf`, ..."""
        return dict(self.get(_run(dag_id, run_id)))

    def wait_run(
        self,
        dag_id: str,
        run_id: str,
        *,
        timeout_s: float,
        poll_s: float = 0.2,
        progress: Callable[[dict[str, Any]], object] = dict,
    ) -> dict[str, Any]:
        """The run, once it succeeded or failed; `progress` is called with what each look at it finds.

        An answer that takes too long is asked for again. Raises PlatformError: it did neither in time.
        """
        run: dict[str, Any] = {"state": "not known"}

        def is_finished() -> bool:
            try:
                run.update(self.dag_run(dag_id, run_id))
                progress(run)
            except PlatformError as error:
                if not isinstance(error.__cause__, httpx.TimeoutException):
                    raise
            return run["state"] in FINISHED

        if wait_until(is_finished, timeout_s, poll_s):
            return run
        raise PlatformError(
            f"Run {run_id} of DAG {dag_id} is still {run['state']} after {timeout_s:.0f} s",
            fix="See its tasks in Airflow, and `tidegate status`",
            dag_id=dag_id,
            run_id=run_id,
        )

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """The tasks of a run: `task_id`, `state`, `try_number`, `start_date`, `end_date`, `duration`, ..."""
        return self.pages(f"{_run(dag_id, run_id)}/taskInstances", "task_instances")

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """What a task left for others, decoded from JSON where it is JSON; None when it left nothing."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_part(task_id)}/xcomEntries/{_part(key)}"
        entry = self.find(path, deserialize=False, map_index=map_index)
        return None if entry is None else _json_or_text(entry["value"])

    def count_mapped(self, dag_id: str, run_id: str, task_id: str, state: str) -> int:
        """How many instances of a mapped task are in a state; 0 before it was mapped."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_part(task_id)}/listMapped"
        listing = self.find(path, state=state, limit=1)
        return 0 if listing is None else int(listing["total_entries"])

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """The log of one try of a task, one event a line; an event's error and stack follow it."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_part(task_id)}/logs/{try_number}"
        content = self.get(path, full_content=True, map_index=map_index)["content"]
        return "\n".join(line if isinstance(line, str) else _log_line(line) for line in content)

    def why_failed(self, dag_id: str, run_id: str) -> str:
        """The task of a run that failed first, since others may fail for that, and the error at the end of its log."""
        failed = [task for task in self.task_instances(dag_id, run_id) if task["state"] == "failed"]
        if not failed:
            return "no task failed by itself"
        task = min(failed, key=lambda task: task["end_date"] or "")
        log = self.task_log(dag_id, run_id, task["task_id"], task["try_number"], task["map_index"])
        index = f" ({task['rendered_map_index']})" if task.get("rendered_map_index") else ""
        return f"{task['task_id']}{index}: {_last_error(log)}"

    # ---- what the platform keeps in Airflow

    def variables(self, prefix: str = "") -> dict[str, str]:
        """The Variables whose keys begin so; the values of keys that look secret are masked by Airflow."""
        entries = self.pages("/variables", "variables", order_by="id", variable_key_prefix_pattern=prefix)
        # Airflow drops what is not a letter or digit from the end of the prefix, and lists a little more
        return {entry["key"]: entry["value"] for entry in entries if entry["key"].startswith(prefix)}

    def variable(self, key: str) -> str:
        """A Variable's value; JSON comes back as equal JSON with other blanks. Raises PlatformError: there is none (404)."""
        return str(self.get(f"/variables/{_part(key)}")["value"])

    def set_variable(self, key: str, value: str, description: str | None = None) -> None:
        """Make or replace a Variable."""
        body = {"key": key, "value": value, "description": description}
        if self.find(f"/variables/{_part(key)}") is not None or not self._make("/variables", body):
            self.patch(f"/variables/{_part(key)}", body)

    def delete_variable(self, key: str) -> None:
        """Remove a Variable. Raises `PlatformError` when there is none (status 404)."""
        try:
            self.delete(f"/variables/{_part(key)}")
        except PlatformError as error:
            if not _may_be_done(error, httpx.codes.NOT_FOUND):
                raise

    def sync_connection(self, connection_id: str, ours: Mapping[str, Any], *, mark: str) -> None:
        """Make the connection be `ours` (`conn_type`, `host`, `port`, `extra` as JSON), unless somebody made it theirs.

        `mark` is the description of our connections; one with another description is left alone.
        """
        connection = {"connection_id": connection_id, "host": None, "port": None, "extra": None, "description": mark, **ours}
        path = f"/connections/{_part(connection_id)}"
        current = self.find(path)
        if current is None:
            self._make("/connections", connection)
        elif current["description"] == mark and any(
            _json_or_text(current[key]) != _json_or_text(value) for key, value in connection.items()
        ):
            self.patch(path, connection)

    def pool_slots(self, name: str) -> int | None:
        """The slots of a pool, -1 where it has no limit; None: there is no pool of that name."""
        pool = self.find(f"/pools/{_part(name)}")
        return None if pool is None else int(pool["slots"])

    def parallelism(self) -> int | None:
        """The tasks that Airflow runs at the same time (`[core] parallelism`); None where its API does not show settings."""
        try:
            found = self.get("/config/section/core/option/parallelism")
            return int(found["sections"][0]["options"][0]["value"])
        except (PlatformError, LookupError, TypeError, ValueError):
            return None

    def has_plugin(self, name: str) -> bool:
        """Whether Airflow has loaded a plugin of that name."""
        return self.plugin(name) is not None

    def page(self, path: str) -> str | None:
        """The address of one of Tidegate's pages (`tidegate.core.model.uris`); None: this Airflow has none, or does not say.

        In a container of Airflow's, browsers reach the page by Airflow's own `[api] base_url`, not by the address used here.
        """
        try:
            plugin = self.plugin("tidegate")
        except PlatformError:  # not everybody may see plugins
            return None
        if plugin is None or not plugin.get("react_apps"):
            return None
        public = os.environ.get(BASE_URL)
        return str((httpx.URL(f"{public.rstrip('/')}/") if public else self.base_url).join(path))

    def plugin(self, name: str) -> dict[str, Any] | None:
        """The plugin of that name; None where Airflow has loaded none."""
        return next((plugin for plugin in self.pages("/plugins", "plugins") if plugin["name"] == name), None)

    def announce(self, asset: str, keys: Iterable[str], extra: Mapping[str, Any]) -> Iterator[str]:
        """Write an event of an asset for each partition key, which is given back. Raises PlatformError: those are written."""
        found = [a["id"] for a in self.pages("/assets", "assets", name_pattern=asset) if a["name"] == asset]
        if not found:
            raise PlatformError(f"Airflow has no asset {asset}", fix="Wait until it has read the DAGs, then try again")
        for key in keys:
            self.post("/assets/events", {"asset_id": found[0], "partition_key": key, "extra": dict(extra)})
            yield key

    def sync_pool(self, name: str, slots: int) -> None:
        """Make sure that the pool exists. One that exists keeps its slots: they are for operators to tune."""
        if self.find(f"/pools/{_part(name)}") is None:
            self._make("/pools", {"name": name, "slots": slots})

    def delete_pool(self, name: str) -> bool:
        """Remove a pool; whether there was one."""
        if self.pool_slots(name) is None:
            return False
        self.delete(f"/pools/{_part(name)}")
        return True

    # ----

    def _make(self, path: str, body: Mapping[str, Any]) -> bool:
        """POST what was not there; False where a repeated request found it, made by the first."""
        try:
            self.post(path, body)
        except PlatformError as error:
            if not _may_be_done(error, httpx.codes.CONFLICT):
                raise
            return False
        return True


def _part(text: str) -> str:
    return quote(text, safe="")


def _run(dag_id: str, run_id: str) -> str:
    return f"/dags/{_part(dag_id)}/dagRuns/{_part(run_id)}"


def _may_be_done(error: PlatformError, status: int) -> bool:
    """Whether a repeated request was refused because it was applied before, though its answer said otherwise."""
    return error.fields.get("status") == status and error.fields.get("tries", 1) > 1


def _log_line(event: Mapping[str, Any]) -> str:
    line = str(event.get("event", ""))
    details = [json.dumps(event[key], default=str) for key in ("error_detail", "exc_info", "exception") if event.get(key)]
    return "\n".join([line, *details])


def _last_error(log: str) -> str:
    for line in reversed(log.splitlines()):
        if line.startswith('[{"') and "exc_type" in line:
            detail = json.loads(line)[0]
            return f"{detail.get('exc_type')}: {detail.get('exc_value')}"
    return "see its log"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def _json_or_text(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
