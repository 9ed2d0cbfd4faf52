"""Seconds until the range map of a pipeline can be used in a browser, and seconds of the server for each route.

    python -m tests.bench.pages [--batches 5000] [--partitions 16] [--rounds 7]

Airflow's own API server in this process, on SQLite, with the plugin; Chromium without a window. Saved state is in the database,
brokers and table answer from memory: of the table, whatever an Iceberg table has in its metadata is parsed. The first answers
are those of a server that has just started. Beside it, the same for a page of Airflow's own, which shows its share.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HOME = tempfile.mkdtemp(prefix="tidegate-bench-pages-")
os.environ |= {  # before Airflow is imported
    "AIRFLOW_HOME": HOME,
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
}

import uvicorn  # noqa: E402
from airflow import settings  # noqa: E402
from airflow.api_fastapi.app import create_app  # noqa: E402
from airflow.models import import_all_models  # noqa: E402
from airflow.models.base import Base  # noqa: E402
from airflow.models.dag import DagModel, DagTag  # noqa: E402
from airflow.models.dagbundle import DagBundleModel  # noqa: E402
from airflow.models.serialized_dag import SerializedDagModel  # noqa: E402
from airflow.serialization.serialized_objects import LazyDeserializedDAG  # noqa: E402
from airflow.utils.session import create_session  # noqa: E402
from playwright.sync_api import Page, sync_playwright  # noqa: E402
from starlette.routing import Mount  # noqa: E402

from tests.bench.cli import run  # noqa: E402
from tests.records import cursor_of, range_of, write_of  # noqa: E402
from tidegate.airflow.dags import pipeline_dag  # noqa: E402
from tidegate.core.config.pipeline import Pipeline, Sink, Source  # noqa: E402
from tidegate.core.model.ranges import OffsetRange, TopicPartition  # noqa: E402
from tidegate.core.model.watermarks import Watermarks  # noqa: E402
from tidegate.core.state.history import TableCommit, TableHistory  # noqa: E402
from tidegate.core.state.ledger import Ledger  # noqa: E402
from tidegate.core.state.saved_range import Decision  # noqa: E402
from tidegate.sinks.iceberg.history import IcebergReader  # noqa: E402
from tidegate.ui import PREFIX, caches, reading  # noqa: E402
from tidegate.ui.database import DatabaseStore  # noqa: E402

NAME, TOPIC = "orders", "orders"
KEPT = 1000
"""Saved ranges that a pipeline keeps."""
EACH = 100
"""Offsets of a partition in a batch."""
INTERVAL_MS = 60_000
OWN = "a[href$='/dags']"
"""In the navigation of Airflow's own pages."""
ROUTES = {
    "all pipelines": "pipelines",
    "map": f"dags/{NAME}/map?columns=200&limit=25",
    "map, time": f"dags/{NAME}/map?columns=200&limit=25&axis=time",
    "batch": f"dags/{NAME}/batches/5",
    "history, 30 days": f"dags/{NAME}/history?hours=720&buckets=120",
}


def ranges(seq: int, partitions: int) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(TOPIC, n, EACH * (seq - 1), EACH * seq) for n in range(partitions))


class Log:
    """A log that is one batch ahead of the cursor."""

    def __init__(self, batches: int, partitions: int) -> None:
        self._of = [TopicPartition(TOPIC, n) for n in range(partitions)]
        self._end = EACH * (batches + 1)

    def watermarks(self, _topics: Any, **_more: Any) -> Watermarks:
        return Watermarks(dict.fromkeys(self._of, 0), dict.fromkeys(self._of, self._end))

    def next_timestamps(self, positions: Any, **_more: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(positions, time.time_ns() // 1_000_000 - 5000)

    def retention_ms(self, topics: Any) -> dict[str, int]:
        return dict.fromkeys(topics, 604_800_000)


def fill(batches: int, partitions: int) -> TableHistory:
    """Airflow's tables with a pipeline, and the commits of its table, newest first."""
    import_all_models()  # type: ignore[no-untyped-call]
    Base.metadata.create_all(settings.engine)
    dag = pipeline_dag(Pipeline(NAME, Source((TOPIC,)), "m:f", sink=Sink("lake.bench.orders")), spark_jobs=Path())
    with create_session() as session:
        session.add(DagBundleModel(name="dags"))
        session.flush()
        model = DagModel(dag_id=NAME, bundle_name="dags", is_stale=False, is_paused=False)  # type: ignore[no-untyped-call]
        model.fileloc = model.relative_fileloc = "d.py"
        session.add(model)
        session.flush()
        session.add_all(DagTag(name=tag, dag_id=NAME) for tag in dag.tags)
        SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), bundle_name="dags", session=session)
    ledger, now_ms = Ledger(DatabaseStore(), NAME), time.time_ns() // 1_000_000
    of = [TopicPartition(TOPIC, n) for n in range(partitions)]
    ledger.save_cursor(cursor_of(NAME, batches, dict.fromkeys(of, EACH * batches)))
    decisions = tuple(Decision(tp, "cursor", "log end") for tp in of)
    planned = [now_ms - INTERVAL_MS * (batches - n) for n in range(batches)]
    for seq in range(max(1, batches - KEPT + 1), batches + 1):
        saved = range_of(NAME, seq, f"run {seq}", ranges(seq, partitions), decisions, {}, {}, planned[seq - 1])
        ledger.save_range(saved)
    commits = []
    for seq in range(batches, 0, -1):
        load = write_of(NAME, seq, f"run {seq}", ranges(seq, partitions), f"m:f@{1 + seq * 3 // (batches + 1)}", "a")
        commits.append(TableCommit(seq, planned[seq - 1] + 9000, load.to_properties(), rows=EACH * partitions))
    return TableHistory(commits=tuple(commits))


def serve(app: Any) -> tuple[uvicorn.Server, str]:
    """The API server in a thread of its own, and its address."""
    made = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    threading.Thread(target=made.run, daemon=True).start()
    while not made.started:
        time.sleep(0.05)
    return made, f"http://127.0.0.1:{made.servers[0].sockets[0].getsockname()[1]}"


def interactive_s(page: Page, address: str, drawn: str) -> float:
    """Seconds from the navigation to the first drawing of what `drawn` finds; then the page reacts to a key."""
    page.goto(address, wait_until="commit")
    page.wait_for_selector(drawn, state="visible")
    mark = page.evaluate(
        "() => new Promise(done => requestAnimationFrame(() => setTimeout(() => "
        "done((performance.getEntriesByName('tidegate:map')[0]?.startTime ?? performance.now()) / 1000))))"
    )
    return float(mark)


def timed(page: Page, path: str) -> float:
    """Seconds of one answer of a route, in the browser."""
    script = """async path => {
        const begun = performance.now()
        await (await fetch("/tidegate/api/" + path)).text()
        return (performance.now() - begun) / 1000
    }"""
    return float(page.evaluate(script, path))


def measure(batches: int, partitions: int, rounds: int, _folder: Path) -> dict[str, Any]:
    """Medians over some rounds, and the first answer of each route, in seconds."""
    history, log = fill(batches, partitions), Log(batches, partitions)
    of_brokers: Any = caches.Kafka
    of_brokers.ask = lambda _self, _connection, question: question(log)
    of_tables: Any = IcebergReader
    of_tables.history = lambda _self, _table: history
    app = create_app(apps="core")
    (ours,) = [route.app for route in app.routes if isinstance(route, Mount) and route.path == PREFIX]
    running, address = serve(app)
    found: dict[str, Any] = {"batches": batches, "partitions": partitions, "first": {}, "route": {}}
    map_page, own_page = f"{address}/dags/{NAME}/plugin/ranges", f"{address}/dags/{NAME}/runs"
    try:
        with sync_playwright() as playwright:
            path = os.environ.get("TIDEGATE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
            page = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"]).new_page()
            interactive_s(page, own_page, OWN)  # the browser keeps Airflow's own scripts
            for name, route in ROUTES.items():
                ours.state.source = reading.PageSource()  # type: ignore[attr-defined]
                found["first"][name] = round(timed(page, route), 3)
            time.sleep(15)  # a table of many partitions is parsed meanwhile
            for name, route in ROUTES.items():
                found["route"][name] = round(statistics.median(timed(page, route) for _ in range(rounds)), 3)
            both: dict[str, list[float]] = {"map": [], "airflow": []}
            for _ in range(rounds):
                both["map"].append(interactive_s(page, map_page, "svg[role=slider] path"))
                both["airflow"].append(interactive_s(page, own_page, OWN))
            found["interactive"] = {name: round(statistics.median(times), 2) for name, times in both.items()}
    finally:
        running.should_exit = True
        with suppress(OSError):
            shutil.rmtree(HOME)
    return found


if __name__ == "__main__":
    run(__doc__, measure, batches=5000, partitions=16, rounds=7)
