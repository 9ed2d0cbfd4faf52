"""Requests to Airflow's public REST API (v2): login, repeats, pages, and what a refusal means.

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
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tidegate.core.model.errors import PlatformError
from tidegate.core.model.uris import is_loopback
from tidegate.waiting import wait_until

URL, USER = "TIDEGATE_AIRFLOW_URL", "TIDEGATE_AIRFLOW_USER"
PASSWORD, TOKEN = "TIDEGATE_AIRFLOW_PASSWORD", "TIDEGATE_AIRFLOW_TOKEN"
"""Environment variables that name another Airflow than the embedded one; see `tidegate.airflow.remote.schedule`."""
CA_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
PAGE = 100
LOCKED_TIMEOUT_S = 60.0
"""How long a request is repeated that Airflow's database failed."""


class RestClient:
    """One Airflow's REST API; paths begin after `/api/v2`. Close it, or use it in a `with`.

    `url` has the path under which it is served, if any. A `token` is for auth managers that give none for a password.
    `transport` takes the place of the network. `tell` hears that a request is repeated, which may take a minute. Raises
    PlatformError: the URL is not one, or the CA certificates that the environment names cannot be read.
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
            trust_env=not is_loopback(httpx.URL(url).host),
            verify=_trusted() if url.startswith("https:") else httpx.create_ssl_context(trust_env=False),
            transport=transport,
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.close()

    @property
    def base_url(self) -> httpx.URL:
        """Where it is, with a slash at its end."""
        return self._client.base_url

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
                    f"Airflow does not answer at {self._client.base_url}: {error or type(error).__name__}", fix=_fix_of(error)
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
                fix="See the log of the Airflow API server" if response.is_server_error else _right(response),
                status=response.status_code,
                tries=failed + len(responses),
            )
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise PlatformError(
                f"{self._client.base_url} answers {method} {path} with something other than JSON: {_reason(response)}",
                fix=f"Set {URL} to the address under which Airflow answers itself (http or https, host, path)",
                status=response.status_code,
            ) from error

    def pages(self, path: str, field: str, **params: Any) -> list[dict[str, Any]]:
        """All entries of a listing. Raises PlatformError."""
        entries: list[dict[str, Any]] = []
        total = 0
        while True:
            page = self.get(path, limit=PAGE, offset=len(entries), **params)
            if page["total_entries"] < total:  # pages begin at positions: what was deleted meanwhile would hide another entry
                entries, total = [], 0
                continue
            entries.extend(page[field])
            total = page["total_entries"]
            if not page[field] or len(entries) >= total:
                return entries


NO_LOGIN = f"Get a token as the auth manager of this Airflow says, and set {TOKEN} to it"
WRONG_LOGIN = f"Correct {USER} and {PASSWORD}, or set {TOKEN}"
RUN_BY_USERS = ("dags", "assets", "backfills")
"""What users without the role Op may change."""
REFUSED_LOGINS = {401: WRONG_LOGIN, 403: WRONG_LOGIN, 404: NO_LOGIN, 405: NO_LOGIN}


def _right(response: httpx.Response) -> str:
    """Which role of Airflow a refused request needs; nothing for one that was refused for something else."""
    if response.status_code != httpx.codes.FORBIDDEN:
        return ""
    kind, reads = response.request.url.path.partition("/api/v2/")[2].partition("/")[0], response.request.method == "GET"
    role = "Op" if kind in ("variables", "connections") else "Viewer" if reads else "User" if kind in RUN_BY_USERS else "Op"
    return f"It needs Airflow's role {role}, or one that may {'read' if reads else 'change'} {kind}: log in as such a user"


def _checked(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise PlatformError(
            f"{url!r} is not a URL: {error}", fix=f"Set {URL} to one like https://airflow.example.com"
        ) from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise PlatformError(f"{url!r} is not an http or https URL", fix=f"Set {URL} to one like https://airflow.example.com")
    return parsed


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


def _failed_in_database(response: httpx.Response) -> bool:
    """Whether Airflow's database failed the request. Nothing has changed then, unless it lost the answer of a commit.

    It is locked while Airflow recovers from a kill. On SQLite, Airflow 3.3 also locks itself out for some seconds: it writes
    its audit log in the event loop, where a request that has begun to write waits to end. The routes of backfills say so in a
    sentence, the others by a reason.
    """
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return False
    told = detail if isinstance(detail, str) else detail.get("reason") if isinstance(detail, dict) else None
    return response.is_server_error and str(told).startswith(("Database error", "Database is locked"))


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
