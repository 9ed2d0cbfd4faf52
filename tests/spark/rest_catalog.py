"""An Iceberg REST catalog in this process: the protocol of its OpenAPI document over PyIceberg's `SqlCatalog`.

Its namespaces and tables can be made, loaded and, by commits, changed. PyIceberg checks the requirements of a commit and writes
the metadata. The answer to a commit can be lost, and something else can happen before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

OK, CLOSED = 200, 0
STATUS = {NoSuchNamespaceError: 404, NoSuchTableError: 404, CommitFailedException: 409}


class RestCatalog(ThreadingHTTPServer):
    """`uri` is where it listens; `commits` are the answers to commits of tables, by their status, in their order."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.uri = f"http://127.0.0.1:{self.server_port}"
        self.catalog = SqlCatalog("rest", uri=f"sqlite:///{folder}/rest.db", warehouse=folder.as_uri())
        self.lock = Lock()
        self.commits: list[int] = []
        self.before: list[Callable[[], object]] = []
        """What happens before the next commits, once they have arrived."""
        self.lost: list[int] = []
        """What the answers to the next commits that land become: a status, or a connection that is closed."""

    def answer(self, method: str, path: list[str], body: bytes) -> str:
        """The body of an answer."""
        match method, path:
            case "POST", ["namespaces"]:
                namespace = json.loads(body)["namespace"]
                self.catalog.create_namespace(tuple(namespace))
                said: dict[str, Any] = {"namespace": namespace, "properties": {}}
            case "GET", ["namespaces", namespace]:
                said = {"namespace": [namespace], "properties": self.catalog.load_namespace_properties(namespace)}
            case "POST", ["namespaces", namespace, "tables"]:
                return self._create(namespace, CreateTableRequest.model_validate_json(body))
            case "GET", ["namespaces", namespace, "tables", name]:
                return _described(self.catalog.load_table((namespace, name)))
            case "POST", ["namespaces", namespace, "tables", name]:
                return self._commit((namespace, name), json.loads(body))
            case _:
                said = {"defaults": {}, "overrides": {}}  # of `config`; a report of metrics is not read
        return json.dumps(said)

    def _create(self, namespace: str, wanted: CreateTableRequest) -> str:
        """A table, or one that a commit will make."""
        spec, order = wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC, wanted.write_order or UNSORTED_SORT_ORDER
        made = (namespace, wanted.name), wanted.table_schema, wanted.location, spec, order, wanted.properties
        create = self.catalog._create_staged_table if wanted.stage_create else self.catalog.create_table
        return _described(create(*made))

    def _commit(self, identifier: tuple[str, str], wanted: dict[str, Any]) -> str:
        namespace, name = identifier
        request = CommitTableRequest.model_validate({"identifier": {"namespace": [namespace], "name": name}, **wanted})
        table = cast("Table", SimpleNamespace(name=lambda: identifier))  # which need not exist; no more of it is asked for
        return self.catalog.commit_table(table, request.requirements, request.updates).model_dump_json()


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalog
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, _, *path = map(unquote, urlsplit(self.path).path.split("/"))
        commit = self.command == "POST" and "tables" in path[-2:]
        if commit and self.server.before:
            self.server.before.pop()()
        status = OK
        with self.server.lock:
            try:
                text = self.server.answer(self.command, path, body)
            except Exception as error:  # noqa: BLE001 - it is the client's
                status = STATUS.get(type(error), 500)
                text = _problem(error, status)
            if commit:
                self.server.commits.append(status)
                if status == OK and self.server.lost and (lost := self.server.lost.pop(0)) != OK:
                    status, text = lost, _problem(OSError("the answer is lost"), lost)
        if status == CLOSED:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(text.encode())))
        self.send_header("Retry-After", "0")  # which is read of a 503 alone
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = _do  # noqa: N815 - the names of `BaseHTTPRequestHandler`


def _described(table: Table) -> str:
    described = {"metadata": table.metadata, "metadata-location": table.metadata_location}
    return TableResponse.model_validate(described).model_dump_json()


def _problem(error: Exception, status: int) -> str:
    return json.dumps({"error": {"message": str(error), "type": type(error).__name__, "code": status}})


@contextmanager
def rest_catalog(folder: Path) -> Iterator[RestCatalog]:
    """A catalog whose tables lie in the folder."""
    with RestCatalog(folder) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
