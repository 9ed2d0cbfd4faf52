"""Airflow's public REST API (v2), as far as a command, a test or a demo needs it.

Rules: every refusal is a `PlatformError` with the server's own words and its HTTP status in `fields["status"]`; a token that is
not given is fetched when it is first needed, and again when it expired; nothing is cached. A request that Airflow's database
failed is sent again for a while; it may have been applied before, so what a repeat finds done is done. An Airflow elsewhere is
reached as the environment says: through `HTTPS_PROXY` unless `NO_PROXY` names it, and with the CA certificates of
`SSL_CERT_FILE`, `SSL_CERT_DIR` or `REQUESTS_CA_BUNDLE`. No proxy is ever asked for the loopback. Redirects are not followed: a
password goes to the address that was given, and to no other.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from tidegate.core.errors import PlatformError
from tidegate.waiting import wait_until

URL, USER = "TIDEGATE_AIRFLOW_URL", "TIDEGATE_AIRFLOW_USER"
PASSWORD, TOKEN = "TIDEGATE_AIRFLOW_PASSWORD", "TIDEGATE_AIRFLOW_TOKEN"
"""Environment variables that name another Airflow than the embedded one; see `tidegate.airflow.remote.schedule`."""
CA_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
PAGE = 100
LOCKED_TIMEOUT_S = 60.0
"""How long a request is repeated that Airflow's database failed."""
FINISHED = frozenset({"success", "failed"})


class AirflowApi:
    """A client of one Airflow. Close it, or use it in a `with`.

    Args:
        url: where it is, with the path under which it is served, if any.
        user: who logs in. password: theirs.
        token: a bearer token instead, for auth managers that give none for a password.
        timeout_s: seconds that an answer may take.
        transport: instead of the network.
        tell: hears that a request is repeated, which may take a minute.

    Raises:
        PlatformError: the URL is not one, or the CA certificates that the environment names cannot be read.

    with platform.api() as api:
        run_id = api.trigger("flights", {"max_records": 4000})
        print(api.wait_run("flights", run_id, timeout_s=60)["state"])
    """

    def __init__(
        self,
        url: str,
        user: str = "",
        password: str = "",
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        transport: httpx.BaseTransport | None = None,
        tell: Callable[[str], object] = str,
    ) -> None:
        self._tell = tell
        self._login = None if token else {"username": user, "password": password}
        self._client = httpx.Client(
            base_url=_checked(url),
            timeout=timeout_s,
            # its proxies are for the world, not for the loopback
            trust_env=not _is_loopback(httpx.URL(url).host),
            verify=_trusted() if url.startswith("https:") else httpx.create_ssl_context(trust_env=False),
            transport=transport,
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the server."""
        self._client.close()

    # ---- any endpoint

    def login(self) -> None:
        """Fetch a token. Every other call does this by itself."""
        try:
            response = self._send("POST", "/auth/token", json=self._login)
            self._client.headers["Authorization"] = f"Bearer {response['access_token']}"
        except (KeyError, TypeError) as error:
            raise PlatformError(f"{self._client.base_url} gives no token for a login", fix=NO_LOGIN) from error
        except PlatformError as error:
            if error.fields.get("status") not in REFUSED_LOGINS:
                raise
            raise PlatformError(error.message, fix=REFUSED_LOGINS[error.fields["status"]], **error.fields) from error

    def get(self, path: str, **params: Any) -> Any:
        """GET `/api/v2<path>`; the decoded JSON."""
        return self._call("GET", path, params=params)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """POST a JSON body to `/api/v2<path>`; the decoded JSON."""
        return self._call("POST", path, json=dict(body))

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """PATCH `/api/v2<path>` with a JSON body; the decoded JSON."""
        return self._call("PATCH", path, json=dict(body))

    def delete(self, path: str) -> None:
        """DELETE `/api/v2<path>`."""
        self._call("DELETE", path)

    def find(self, path: str, **params: Any) -> Any | None:
        """As `get`, but None when there is no such thing."""
        try:
            return self.get(path, **params)
        except PlatformError as error:
            if error.fields.get("status") == httpx.codes.NOT_FOUND:
                return None
            raise

    # ---- DAGs

    def health(self) -> dict[str, Any]:
        """The health of the database, the scheduler and the DAG processor; needs no token."""
        return dict(self._send("GET", "/api/v2/monitor/health"))

    def dags(self) -> list[dict[str, Any]]:
        """All DAGs, paused ones too."""
        return self._pages("/dags", "dags")

    def wait_dag(self, dag_id: str, *, timeout_s: float = 60.0) -> dict[str, Any]:
        """The DAG, once the DAG processor has read it.

        Raises:
            PlatformError: it is not there in time; tells the import errors, which are the usual reason.
        """
        found: list[dict[str, Any]] = []

        def is_there() -> bool:
            dag = self.find(f"/dags/{_part(dag_id)}")
            if dag is not None and not dag["is_stale"]:
                found.append(dag)
            return bool(found)

        if wait_until(is_there, timeout_s, poll_s=0.5):
            return found[0]
        errors = "; ".join(f"{error['filename']}: {_last_line(error['stack_trace'])}" for error in self.import_errors())
        raise PlatformError(
            f"Airflow has no DAG {dag_id} after {timeout_s:.0f} s ({errors or 'no import errors'})",
            fix="Run `tidegate check`, and see the log of the DAG processor",
            dag_id=dag_id,
        )

    def import_errors(self) -> list[dict[str, Any]]:
        """What the DAG processor could not read: `filename`, `stack_trace`, `timestamp`, ..."""
        return self._pages("/importErrors", "import_errors")

    def unpause(self, dag_id: str) -> None:
        """Let the DAG's runs start."""
        self.patch(f"/dags/{_part(dag_id)}", {"is_paused": False})

    def pause(self, dag_id: str) -> None:
        """Keep the DAG's new runs from starting."""
        self.patch(f"/dags/{_part(dag_id)}", {"is_paused": True})

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

    def dag_runs(self, dag_id: str) -> list[dict[str, Any]]:
        """All runs of the DAG, the oldest first."""
        return self._pages(f"/dags/{_part(dag_id)}/dagRuns", "dag_runs", order_by="run_after")

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

        Raises:
            PlatformError: it did neither in time.
        """
        run: dict[str, Any] = {}

        def is_finished() -> bool:
            run.update(self.dag_run(dag_id, run_id))
            progress(run)
            return run["state"] in FINISHED

        if wait_until(is_finished, timeout_s, poll_s):
            return run
        raise PlatformError(
            f"Run {run_id} of DAG {dag_id} is still {run['state']} after {timeout_s:.0f} s",
            fix="See its tasks in Airflow, and `tidegate status`",
            dag_id=dag_id,
            run_id=run_id,
        )

    def clear(self, dag_id: str, run_id: str, *, only_failed: bool = False) -> None:
        """Clear the tasks of a run, so that they run again."""
        self.post(f"{_run(dag_id, run_id)}/clear", {"dry_run": False, "only_failed": only_failed})

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """The tasks of a run: `task_id`, `state`, `try_number`, `start_date`, `end_date`, `duration`, ..."""
        return self._pages(f"{_run(dag_id, run_id)}/taskInstances", "task_instances")

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """What a task left for others, decoded from JSON where it is JSON; None when it left nothing."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_part(task_id)}/xcomEntries/{_part(key)}"
        entry = self.find(path, deserialize=False)
        return None if entry is None else _json_or_text(entry["value"])

    def count_mapped(self, dag_id: str, run_id: str, task_id: str, state: str) -> int:
        """How many instances of a mapped task are in a state; 0 before it was mapped."""
        path = f"{_run(dag_id, run_id)}/taskInstances/{_part(task_id)}/listMapped"
        found = self.find(path, state=state, limit=1)
        return 0 if found is None else int(found["total_entries"])

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
        told = f" ({task['rendered_map_index']})" if task.get("rendered_map_index") else ""
        return f"{task['task_id']}{told}: {_last_error(log)}"

    # ---- what the platform keeps in Airflow

    def variables(self, prefix: str = "") -> dict[str, str]:
        """The Variables whose keys begin so; the values of keys that look secret are masked by Airflow."""
        entries = self._pages("/variables", "variables", order_by="id", variable_key_prefix_pattern=prefix)
        # Airflow drops what is not a letter or digit from the end of the prefix, and lists a little more
        return {entry["key"]: entry["value"] for entry in entries if entry["key"].startswith(prefix)}

    def variable(self, key: str) -> str:
        """A Variable's value. A value that is JSON comes back as the same JSON, with Airflow's own blanks.

        Raises:
            PlatformError: there is none (status 404).
        """
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
        wanted = {"connection_id": connection_id, "host": None, "port": None, "extra": None, "description": mark, **ours}
        path = f"/connections/{_part(connection_id)}"
        current = self.find(path)
        if current is None:
            self._make("/connections", wanted)
        elif current["description"] == mark and any(
            _json_or_text(current[key]) != _json_or_text(value) for key, value in wanted.items()
        ):
            self.patch(path, wanted)

    def has_pool(self, name: str) -> bool:
        """Whether there is a pool of that name."""
        return self.find(f"/pools/{_part(name)}") is not None

    def has_plugin(self, name: str) -> bool:
        """Whether Airflow has loaded a plugin of that name."""
        return any(plugin["name"] == name for plugin in self._pages("/plugins", "plugins"))

    def sync_pool(self, name: str, slots: int) -> None:
        """Make sure that the pool exists. One that exists keeps its slots: they are for operators to tune."""
        if self.find(f"/pools/{_part(name)}") is None:
            self._make("/pools", {"name": name, "slots": slots})

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

    def _call(self, method: str, path: str, **request: Any) -> Any:
        if "Authorization" not in self._client.headers:
            self.login()
        try:
            return self._send(method, f"/api/v2{path}", **request)
        except PlatformError as error:
            if error.fields.get("status") != httpx.codes.UNAUTHORIZED:
                raise
            if self._login is None:
                raise PlatformError(error.message, fix=f"Get a new token, and set {TOKEN} to it", **error.fields) from error
            tries = error.fields["tries"]
        self.login()
        return self._send(method, f"/api/v2{path}", failed=tries - 1, **request)

    def _send(self, method: str, path: str, *, failed: int = 0, **request: Any) -> Any:
        """The decoded answer; `failed` is how often Airflow's database failed the request before."""
        responses: list[httpx.Response] = []

        def is_answered() -> bool:
            try:
                responses.append(self._client.request(method, path, **request))
            except httpx.HTTPError as error:
                raise PlatformError(
                    f"Airflow does not answer at {self._client.base_url}: {error or type(error).__name__}",
                    fix=_fix_of(error),
                ) from error
            if not _failed_in_database(responses[-1]):
                return True
            if len(responses) == 1:
                self._tell(f"Airflow's database fails {method} {path}; it is asked again for up to {LOCKED_TIMEOUT_S:.0f} s")
            return False

        wait_until(is_answered, LOCKED_TIMEOUT_S, poll_s=1.0)
        response = responses[-1]
        if response.has_redirect_location:
            raise PlatformError(
                f"{self._client.base_url} answers {method} {path} with a redirect to {response.headers['Location']}",
                fix=f"Set {URL} to the address under which Airflow answers itself (http or https, host, path)",
                status=response.status_code,
            )
        if response.is_error:
            raise PlatformError(
                f"Airflow refused {method} {path}: {_reason(response)}",
                fix="See the log of the Airflow API server" if response.is_server_error else "",
                status=response.status_code,
                tries=failed + len(responses),
            )
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise PlatformError(
                f"{self._client.base_url} answers {method} {path} with something else than JSON: {_reason(response)}",
                fix=f"Set {URL} to the address under which Airflow answers itself (http or https, host, path)",
                status=response.status_code,
            ) from error

    def _pages(self, path: str, field: str, **params: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = self.get(path, limit=PAGE, offset=len(found), **params)
            found.extend(page[field])
            if not page[field] or len(found) >= page["total_entries"]:
                return found


NO_LOGIN = f"Get a token as the auth manager of this Airflow says, and set {TOKEN} to it"
WRONG_LOGIN = f"Correct {USER} and {PASSWORD}, or set {TOKEN}"
REFUSED_LOGINS = {401: WRONG_LOGIN, 403: WRONG_LOGIN, 404: NO_LOGIN, 405: NO_LOGIN}


def _checked(url: str) -> httpx.URL:
    try:
        found = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise PlatformError(
            f"{url!r} is not a URL: {error}", fix=f"Set {URL} to one like https://airflow.example.com"
        ) from error
    if found.scheme not in ("http", "https") or not found.host:
        raise PlatformError(f"{url!r} is not an http or https URL", fix=f"Set {URL} to one like https://airflow.example.com")
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _trusted() -> ssl.SSLContext:
    """The CA certificates that the environment names; httpx knows the first two, and PyIceberg's REST catalog the last."""
    name = next((name for name in CA_CERTIFICATES if os.environ.get(name)), None)
    if name is None:
        return httpx.create_ssl_context()
    where = os.environ[name]
    try:
        folder = Path(where).is_dir()
        return ssl.create_default_context(cafile=None if folder else where, capath=where if folder else None)
    except OSError as error:
        raise PlatformError(
            f"the CA certificates of {name} cannot be read: {error} ({where})", fix=f"Let {name} name a PEM file, or unset it"
        ) from error


def _fix_of(error: BaseException) -> str:
    if any(isinstance(cause, ssl.SSLError) for cause in _causes(error)):
        return (
            "Name the file of the CA that signed the server's certificate in SSL_CERT_FILE, "
            f"or correct {URL}: host, port, https or http"
        )
    if isinstance(error, httpx.ProxyError):
        return "Correct HTTPS_PROXY (or HTTP_PROXY), or name the host in NO_PROXY"
    return (
        f"For the embedded Airflow, look at `tidegate status`, then run `tidegate up`; for another, correct {URL}, or the proxy"
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _part(text: str) -> str:
    return quote(text, safe="")


def _run(dag_id: str, run_id: str) -> str:
    return f"/dags/{_part(dag_id)}/dagRuns/{_part(run_id)}"


def _failed_in_database(response: httpx.Response) -> bool:
    """Whether Airflow's database failed the request. Nothing has changed then, unless it lost the answer of a commit.

    It is locked while Airflow recovers from a kill. On SQLite, Airflow 3.3 also locks itself out for some seconds: it writes
    its audit log in the event loop, where a request that has begun to write waits to end.
    """
    try:
        return response.is_server_error and bool(response.json()["detail"]["reason"] == "Database error")
    except (ValueError, KeyError, TypeError):
        return False


def _may_be_done(error: PlatformError, status: int) -> bool:
    """Whether a repeated request was refused because it was applied before, though its answer said otherwise."""
    return error.fields.get("status") == status and error.fields.get("tries", 1) > 1


def _reason(response: httpx.Response) -> str:
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text.strip()[:300] or response.reason_phrase
    if isinstance(detail, dict):
        detail = ": ".join(str(detail[key]) for key in ("reason", "message") if detail.get(key)) or json.dumps(detail)
    if isinstance(detail, list):  # a body that does not fit its schema
        detail = "; ".join(f"{'.'.join(map(str, item.get('loc', ())))}: {item.get('msg', item)}" for item in detail)
    return f"{detail} (HTTP {response.status_code})"


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
