"""The REST client, against a scripted server; the real one answers in the integration tests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.records import range_of
from tidegate import waiting
from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.core.model.errors import PlatformError
from tidegate.core.model.ranges import OffsetRange
from tidegate.core.model.uris import run_page
from tidegate.core.state.ledger import Ledger
from tidegate.testing.fakes import MemoryStore

Answer = Callable[[httpx.Request], httpx.Response]


def api(answer: Answer | httpx.Response, tell: Callable[[str], object] = str) -> AirflowApi:
    """A client whose server gives tokens, and `answer` to everything else."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/auth/token":
            return httpx.Response(201, json={"access_token": "t"})
        return answer if isinstance(answer, httpx.Response) else answer(request)

    return AirflowApi("http://airflow", "admin", "p", transport=httpx.MockTransport(handle), tell=tell)


def refusal(status: int, detail: Any) -> httpx.Response:
    return httpx.Response(status, json={"detail": detail})


def page(request: httpx.Request, name: str, entries: list[dict[str, str]]) -> httpx.Response:
    """The part of the entries that the request asks for."""
    offset, limit = int(request.url.params["offset"]), int(request.url.params["limit"])
    return httpx.Response(200, json={name: entries[offset : offset + limit], "total_entries": len(entries)})


def away(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses take no time, though the clock shows it."""
    now = [0.0]
    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.append(now.pop() + s)))


NO_URLS = ["airflow.example.com:8080", "airflow", "ftp://airflow", "http://", "http://[::1", "http://a:b:c"]
FAULT = {"loc": ["body", "slots"], "msg": "must be positive"}
FORBIDDEN, ROLE = refusal(403, "Forbidden"), "Forbidden .HTTP 403.. It needs Airflow's role {}, or"


def test_a_dag_that_is_not_parsed_yet_cannot_be_started_and_the_wait_is_named() -> None:
    with pytest.raises(PlatformError, match=r"no DAG x yet.*within five minutes, or by `airflow dags reserialize`"):
        api(refusal(404, "not found")).unpause("x")


@pytest.mark.parametrize(
    ("answer", "ask", "message"),
    [
        (refusal(404, "The Dag was not found"), lambda client: client.get("/dags/x"), r"GET /api/v2/dags/x: The Dag was .*404"),
        (refusal(422, [FAULT]), lambda client: client.post("/pools", {}), "slots: must be"),
        (refusal(401, "no"), lambda client: client.get("/dags/x"), "401"),
        (away, lambda client: client.get("/dags"), r"does not answer.*refused.*tidegate up"),
        (httpx.Response(200, json={"state": "queued"}), lambda client: client.wait_run("d", "r", timeout_s=0), "still queued"),
        (FORBIDDEN, lambda client: client.dags(), ROLE.format("Viewer")),
        (FORBIDDEN, lambda client: client.trigger("p"), ROLE.format("User")),
        (FORBIDDEN, lambda client: client.variables(), ROLE.format("Op")),
        (FORBIDDEN, lambda client: client.sync_pool("pool", 1), ROLE.format("Viewer")),
        (FORBIDDEN, lambda client: client.post("/pools", {}), ROLE.format("Op")),
        *((away, lambda _, url=url: AirflowApi(url), r"URL.*TIDEGATE_AIRFLOW_URL") for url in NO_URLS),
    ],
)
def test_what_is_refused_is_told_in_the_servers_own_words(
    answer: Answer | httpx.Response, ask: Callable[[AirflowApi], object], message: str
) -> None:
    """With the path, the field or the role that may, by what was asked. No httpx error gets out."""
    with api(answer) as client, pytest.raises(PlatformError, match=message) as caught:
        ask(client)
    if isinstance(answer, httpx.Response) and answer.is_error:
        assert caught.value.fields["status"] == answer.status_code


def test_a_wait_for_a_run_outlives_an_answer_that_takes_too_long(hurried: None) -> None:
    """A busy API server answers the next look; one that never does ends the wait in time."""
    late = [True]

    def answer(request: httpx.Request) -> httpx.Response:
        if late and late.pop():
            raise httpx.ReadTimeout("timed out", request=request)
        return httpx.Response(200, json={"state": "success"})

    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out", request=request)

    with api(answer) as client:
        assert client.wait_run("d", "r", timeout_s=60)["state"] == "success"
    with api(silent) as client, pytest.raises(PlatformError, match="still not known after 60 s"):
        client.wait_run("d", "r", timeout_s=60)


@pytest.mark.parametrize(("body", "answers"), [({"ok": "healthy"}, True), ({}, False)])
def test_the_api_of_tasks_is_asked_for_without_a_token(body: dict[str, str], *, answers: bool) -> None:
    """Airflow 3.3 serves it below /execution, and builds it for the first request."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert (request.url.path, "authorization" in request.headers) == ("/execution/health/ping", False)
        return httpx.Response(200, json=body)

    with api(answer) as client:
        assert client.task_api_answers() is answers


def test_an_entry_that_is_deleted_between_two_pages_hides_no_other() -> None:
    """Pages begin at positions, and what comes after a deleted entry moves up by one."""
    entries = [{"key": f"tidegate.p.{n:03}", "value": "v"} for n in range(150)]

    def answer(request: httpx.Request) -> httpx.Response:
        listed = page(request, "variables", entries)
        if len(entries) == 150:
            del entries[7]
        return listed

    with api(answer) as client:
        assert list(client.variables("tidegate.p.")) == [entry["key"] for entry in entries]


def test_an_expired_token_is_renewed_once() -> None:
    """The first 401 means a new login, the second is an answer. Ids in paths are quoted."""
    answers = [refusal(401, "expired"), httpx.Response(200, json={"dag_id": "x"}), refusal(404, "gone")]
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return answers.pop(0)

    with api(answer) as client:
        assert client.dag_run("d", "a/b ?#%+é") == {"dag_id": "x"}
        assert client.find("/dags/x") is None
    assert asked == ["/api/v2/dags/d/dagRuns/a%2Fb%20%3F%23%25%2B%C3%A9"] * 2 + ["/api/v2/dags/x"]


def test_a_token_that_is_given_is_used_and_never_fetched() -> None:
    """Where it is refused, the fix names its variable."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.url.path} {request.headers['Authorization']}")
        return httpx.Response(401, json={"detail": "expired"})

    with (
        AirflowApi("http://airflow/base", token="abc", transport=httpx.MockTransport(answer)) as client,  # noqa: S106 - no secret
        pytest.raises(PlatformError, match=r"expired \(HTTP 401\).*new token.*TIDEGATE_AIRFLOW_TOKEN"),
    ):
        client.get("/dags")
    assert asked == ["/base/api/v2/dags Bearer abc"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refusal(401, "Invalid"), "Invalid.*Correct TIDEGATE_AIRFLOW_USER"),
        (refusal(404, "Not Found"), "auth manager.*TIDEGATE_AIRFLOW_TOKEN"),
        (refusal(500, "oops"), "oops.*log of the Airflow API server"),
        (httpx.Response(200, json=[]), "gives no token.*TIDEGATE_AIRFLOW_TOKEN"),
        (httpx.Response(200, json={}), "gives no token.*TIDEGATE_AIRFLOW_TOKEN"),
        (httpx.Response(200, text="<html>Sign in"), "something other than JSON.*<html>Sign in.*TIDEGATE_AIRFLOW_URL"),
        (httpx.Response(301, headers={"Location": "https://air/auth"}), "redirect to https://air/auth.*TIDEGATE_AIRFLOW_URL"),
    ],
)
def test_a_login_that_gives_no_token_names_what_to_set(answer: httpx.Response, words: str) -> None:
    """No httpx or JSON error gets out, and no password goes where a redirect leads."""
    with (
        AirflowApi("http://airflow", "u", "p", transport=httpx.MockTransport(lambda _: answer)) as client,
        pytest.raises(PlatformError, match=words),
    ):
        client.get("/dags")


@pytest.mark.parametrize("failed", [[("verify", 5), ("load", 3)], [("load", 3), ("verify", 5)], [("load", 3), ("load", 4)]])
def test_a_run_failed_for_its_first_failure(failed: list[tuple[str, int]]) -> None:
    """What failed after it may have failed for it."""
    tasks: list[dict[str, Any]] = [{"task_id": "plan", "state": "success", "end_date": "1"}]
    for name, end in failed:
        number = {"try_number": 1, "map_index": end, "rendered_map_index": f"chunk {end}"}
        tasks.append({"task_id": name, "state": "failed", "end_date": f"{end}", **number})

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/taskInstances"):
            return httpx.Response(200, json={"task_instances": tasks, "total_entries": len(tasks)})
        assert request.url.params["map_index"] == "3"
        detail = [{"exc_type": "SparkJobFailed", "exc_value": "out of memory"}]
        return httpx.Response(200, json={"content": [{"event": "no", "error_detail": detail}]})

    with api(answer) as client:
        assert client.why_failed("d", "r") == "load (chunk 3): SparkJobFailed: out of memory"


def test_a_ledger_of_a_thousand_batches_is_read_in_ten_answers() -> None:
    """The listing brings the values; who shows them asks for none again."""
    written = MemoryStore()
    ledger = Ledger(written, "p")
    for seq in range(1, 1001):
        ledger.save_range(range_of("p", seq, f"run{seq}", (OffsetRange("t", 0, seq, seq + 1),), (), {"t": "id"}, {}, seq))
    variables = [{"key": key, "value": value} for key, value in sorted(written.values.items())]
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return page(request, "variables", variables)

    with api(answer) as client:
        ledger = Ledger(ApiStore(client), "p")
        assert [ledger.saved_range(found.key).load.seq for found in ledger.listing().ranges] == list(range(1, 1001))
    assert len(asked) == 10


@pytest.mark.parametrize(
    ("body", "ask", "read"),
    [
        *(({"value": text}, "xcom", read) for text, read in (('{"rows": 1}', {"rows": 1}), ("plain", "plain"), (3, 3))),
        (
            {"content": [{"event": "one"}, {"event": "two", "error_detail": [{"exc_type": "ValueError"}]}]},
            "task_log",
            'one\ntwo\n[{"exc_type": "ValueError"}]',
        ),
    ],
)
def test_an_answer_is_read_as_what_it_is(body: dict[str, Any], ask: str, read: Any) -> None:
    """Airflow gives the stored text of an XCom, and a log as events with what they carry of an error."""
    with api(httpx.Response(200, json=body)) as client:
        assert getattr(client, ask)("d", "r", "t") == read


def test_a_missing_dag_is_explained_by_the_import_errors() -> None:
    errors = [{"filename": "dags/x.py", "stack_trace": "Traceback\nNameError: y\n"}]

    def answer(request: httpx.Request) -> httpx.Response:
        asked = request.url.path.endswith("/importErrors")
        return httpx.Response(200, json={"import_errors": errors, "total_entries": 1}) if asked else refusal(404, "not found")

    with api(answer) as client, pytest.raises(PlatformError, match=r"no DAG x .*dags/x.py: NameError: y"):
        client.wait_dag("x", timeout_s=0)


KAFKA = {"conn_type": "kafka", "host": None, "port": None, "extra": '{"a": 2}', "description": "ours"}


@pytest.mark.parametrize(
    ("current", "sent"),
    [(None, "POST"), ({**KAFKA, "extra": '{"a":1}'}, None), (KAFKA, "PATCH"), ({**KAFKA, "description": "mine now"}, None)],
)
def test_a_connection_is_followed_while_it_is_ours(current: dict[str, Any] | None, sent: str | None) -> None:
    """Made when missing, changed when ours differs, left alone when somebody took it over."""
    changes: list[tuple[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method != "GET":
            changes.append((request.method, json.loads(request.content)["extra"]))
        elif current is None:
            return refusal(404, "not found")
        return httpx.Response(200, json={"connection_id": "kafka_default", **(current or {})})

    with api(answer) as client:
        client.sync_connection("kafka_default", {"conn_type": "kafka", "extra": '{"a": 1}'}, mark="ours")
    assert changes == ([(sent, '{"a": 1}')] if sent else [])


LOCKED = {"reason": "Database error", "statement": "hidden", "orig_error": "hidden", "message": "Serious error"}


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("answers", "asked", "raised"),
    [
        ([(500, LOCKED), (500, LOCKED), (201, "made")], 3, ""),
        ([(503, "Database is locked. Backfill creation is not supported on SQLite"), (201, "made")], 2, ""),
        ([(500, LOCKED), (422, "no")], 2, "HTTP 422"),
        ([(500, "a bug")], 1, "HTTP 500"),
        ([(503, LOCKED)] * 99, 61, "Database error"),
    ],
)
def test_what_airflows_database_rolled_back_is_asked_again(answers: list[tuple[int, Any]], asked: int, raised: str) -> None:
    """For a minute, and nothing else is: what the API refuses for good is raised at once."""
    posted: list[bytes] = []
    told: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        posted.append(request.content)
        status, detail = answers[len(posted) - 1]
        return httpx.Response(status, json={"detail": detail})

    with api(answer, told.append) as client, pytest.raises(PlatformError, match=raised) if raised else nullcontext():
        client.post("/connections", {"connection_id": "kafka_default"})
    assert posted == [b'{"connection_id":"kafka_default"}'] * asked
    again = "Airflow's database fails POST /api/v2/connections; it is asked again for up to 60 s"
    assert told == ([again] if asked > 1 else [])


class LostAnswers:
    """An Airflow that does the first request that changes something, and whose database loses the answer of the commit."""

    def __init__(self, **there: dict[str, Any]) -> None:
        self.there = there
        self.changes = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        key = request.url.path.rpartition("/")[2]
        body = json.loads(request.content or b"{}")
        if request.method == "GET":
            return httpx.Response(200, json=self.there[key]) if key in self.there else refusal(404, "no")
        self.changes += 1
        if request.method == "DELETE":
            status = 204 if self.there.pop(key, None) else 404
        elif request.method == "PATCH":
            status, self.there[key] = 200, body
        else:
            name = next(body[field] for field in ("dag_run_id", "connection_id", "key", "name") if field in body)
            status = 409 if name in self.there else 201
            self.there.setdefault(name, body)
        return refusal(500, LOCKED) if self.changes == 1 else httpx.Response(status, json={})


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("change", "there", "left"),
    [
        (lambda client: client.trigger("flights", {"a": 1}), {}, r"manual__\d{4}-\d\d-\d\dT[0-9:.]+\+00:00_[0-9a-f]{8}"),
        (lambda client: client.set_variable("named", "v"), {}, "named"),
        (lambda client: client.sync_pool("named", 4), {}, "named"),
        (lambda client: client.sync_connection("named", {"conn_type": "kafka"}, mark="ours"), {}, "named"),
        (lambda client: client.delete_variable("named"), {"named": {"value": "v"}}, ""),
    ],
)
def test_what_was_done_before_its_answer_was_lost_is_done_once(
    change: Callable[[AirflowApi], object], there: dict[str, Any], left: str
) -> None:
    airflow = LostAnswers(**there)
    with api(airflow) as client:
        change(client)
    assert re.fullmatch(left, " ".join(airflow.there))


@pytest.mark.usefixtures("hurried")
def test_what_was_there_before_the_first_request_is_never_taken_for_its_work() -> None:
    """A run id that somebody names may have been used last week. A token that expires between tries hides no first one."""
    airflow = LostAnswers(ours={"conf": {"a": 1}})
    with api(airflow) as client:
        for _ in range(2):
            with pytest.raises(PlatformError, match="409"):
                client.trigger("flights", {"a": 1}, run_id="ours")
        assert airflow.changes == 3
        with pytest.raises(PlatformError, match="404"):
            client.delete_variable("missing")
    answers = [refusal(500, LOCKED), httpx.Response(401, json={}), httpx.Response(404, json={})]
    with api(lambda _: answers.pop(0)) as client:
        client.delete_variable("removed")
    assert not answers


@pytest.mark.parametrize(
    ("plugins", "status", "address"),
    [
        ([{"name": "tidegate", "react_apps": [{}]}], 200, "http://airflow/base/dags/p/runs/r%2B1%3Ax%2F2/plugin/range"),
        ([{"name": "tidegate", "react_apps": []}, {"name": "other", "react_apps": [{}]}], 200, None),
        ([], 403, None),
    ],
)
def test_a_page_is_below_the_path_of_airflow(plugins: list[dict[str, str]], status: int, address: str | None) -> None:
    """None where the plugin has no pages, as in a checkout that has not built them, or where plugins may not be seen."""

    def answer(request: httpx.Request) -> httpx.Response:
        return page(request, "plugins", plugins) if status == 200 else refusal(status, "Forbidden")

    with AirflowApi("http://airflow/base", token="abc", transport=httpx.MockTransport(answer)) as client:  # noqa: S106 - no secret
        assert client.page(run_page("p", "r+1:x/2")) == address


def test_a_page_has_the_address_that_browsers_know_where_airflow_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a container of Airflow's, which reaches the API server by a name that only containers know."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://localhost:8080/base")
    plugins: list[Any] = [{"name": "tidegate", "react_apps": [{}]}]
    transport = httpx.MockTransport(lambda request: page(request, "plugins", plugins))
    with AirflowApi("http://airflow-api-server:8080", token="abc", transport=transport) as client:  # noqa: S106 - no secret
        assert client.page("dags/p") == "http://localhost:8080/base/dags/p"
