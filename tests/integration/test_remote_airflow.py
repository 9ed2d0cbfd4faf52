"""An Airflow elsewhere, on real sockets: the way to it (TLS by a CA of its own, and a proxy), and the store over its API."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from tests.integration.shell import Shell
from tidegate.airflow.remote.api import AirflowApi
from tidegate.airflow.remote.schedule import ApiStore
from tidegate.core.model.errors import PlatformError
from tidegate.testing.contracts.state_store import Fill, StateStoreContract
from tidegate_local import sockets

HOST = "airflow.test"
"""A name that only the proxy knows."""


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, and a certificate by it for `localhost` and for HOST."""
    folder = tmp_path_factory.mktemp("pem")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=ca"
    )
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "csr", "-subj", f"/CN={HOST}")
    (folder / "names").write_text(f"subjectAltName=DNS:{HOST},DNS:localhost,IP:127.0.0.1")
    openssl(
        "x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2", "-extfile", "names", "-out", "cert.pem"
    )
    return folder


class Airflow(http.server.BaseHTTPRequestHandler):
    """Gives a token, and tells under which path it was asked, with which token."""

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        told = {"access_token": "t", "path": self.path, "login": self.headers.get("authorization")}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815 - the names they have there

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
        pass


@contextlib.contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler], pem: Path | None = None) -> Iterator[int]:
    """A server on the loopback; its port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if pem is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem / "cert.pem", pem / "key.pem")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def port(pem: Path) -> Iterator[int]:
    """Where the HTTPS server is."""
    with serving(Airflow, pem) as found:
        yield found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No proxy and no CA but those of the test."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_server_whose_ca_is_its_own_is_trusted_where_the_environment_names_the_ca(
    environment: pytest.MonkeyPatch, pem: Path, port: int, name: str
) -> None:
    """And only there; the error names what to set."""
    url = f"https://localhost:{port}/airflow/"
    with AirflowApi(url, "u", "p") as api, pytest.raises(PlatformError, match=r"CERTIFICATE_VERIFY_FAILED.*SSL_CERT_FILE"):
        api.get("/dags")
    environment.setenv(name, str(pem / "ca.pem"))
    with AirflowApi(url, "u", "p") as api:
        assert api.get("/dags") == {"access_token": "t", "path": "/airflow/api/v2/dags", "login": "Bearer t"}


def test_a_server_without_tls_is_named_as_that(environment: pytest.MonkeyPatch) -> None:
    """Where the URL says https, and the server speaks http."""
    with (
        serving(Airflow) as port,
        AirflowApi(f"https://localhost:{port}") as api,
        pytest.raises(PlatformError, match="TIDEGATE_AIRFLOW_URL: host, port, https or http"),
    ):
        api.get("/dags")


def test_a_ca_file_that_is_not_there_is_named(environment: pytest.MonkeyPatch) -> None:
    """Before anything is asked."""
    environment.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(PlatformError, match=r"SSL_CERT_FILE cannot be read.*nowhere\.pem"):
        AirflowApi("https://airflow.test")


class Proxy(http.server.BaseHTTPRequestHandler):
    """A tunnel to wherever the test says, for anybody who asks for HOST; 403 for others."""

    target = 0
    asked: list[str] = []  # noqa: RUF012 - one proxy at a time

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        if not self.path.startswith(HOST):
            self.send_error(403)
            return
        self.send_response(200)
        self.end_headers()
        with socket.create_connection(("127.0.0.1", self.target)) as there:
            back = threading.Thread(target=pump, args=(there, self.connection))
            back.start()
            pump(self.connection, there)
            back.join()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name it has there
        pass


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Hand on all bytes until one side ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def test_a_server_elsewhere_is_reached_through_the_proxy_and_the_loopback_never(
    environment: pytest.MonkeyPatch, pem: Path, port: int
) -> None:
    """As the environment says, with NO_PROXY."""
    environment.setenv("SSL_CERT_FILE", str(pem / "ca.pem"))
    Proxy.target = port
    Proxy.asked.clear()
    with serving(Proxy) as proxy:
        environment.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy}")
        with AirflowApi(f"https://{HOST}", token="given") as api:  # noqa: S106 - no secret
            assert api.get("/dags")["login"] == "Bearer given"
        assert Proxy.asked == [f"{HOST}:443"]
        with AirflowApi("https://other.test") as api, pytest.raises(PlatformError, match=r"403.*Correct HTTPS_PROXY.*NO_PROXY"):
            api.get("/dags")
        for host in ("localhost", "127.0.0.1"):
            with AirflowApi(f"https://{host}:{port}") as api:
                assert api.get("/dags")["path"] == "/api/v2/dags"
        assert Proxy.asked == [f"{HOST}:443", "other.test:443"]


class TestApiStore(StateStoreContract):
    """From outside."""

    @pytest.fixture
    def api(self, shell: Shell) -> Iterator[AirflowApi]:
        with shell.platform.api() as api:
            yield api

    @pytest.fixture
    def store(self, api: AirflowApi) -> ApiStore:
        return ApiStore(api)

    @pytest.fixture
    def another(self, api: AirflowApi) -> ApiStore:
        return ApiStore(api)

    @pytest.fixture
    def unreachable(self) -> Iterator[ApiStore]:
        with AirflowApi(f"http://127.0.0.1:{sockets.choose_port([])}", "u", "p") as api:
            yield ApiStore(api)

    @pytest.fixture
    def fill(self, api: AirflowApi) -> Fill:
        """In one request, as Airflow's UI imports Variables."""

        def create(keys: Iterable[str]) -> None:
            entities = [{"key": key, "value": "v"} for key in keys]
            answer = api.patch("/variables", {"actions": [{"action": "create", "entities": entities}]})
            assert not answer["create"]["errors"]

        return create

    @pytest.fixture
    def read_json(self) -> Callable[[str], str]:
        """Airflow's REST API decodes and encodes it, to mask what is in it."""
        return lambda text: json.dumps(json.loads(text))
