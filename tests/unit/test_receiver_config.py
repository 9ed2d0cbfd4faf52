"""Laws of receiver files: each setting beside the others, and the editor's schema beside the validator."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from tidegate.core.config.names import name_faults
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.schema import json_schema
from tidegate.core.model.addresses import is_loopback
from tidegate.core.model.errors import ConfigError
from tidegate_receivers.config.files import parse_receiver
from tidegate_receivers.config.receiver import Backpressure, Connect, File, Listen, Receiver, Tls

HTTP: dict[str, Any] = {"kind": "http", "topic": "orders", "listen": {"port": 8080}}
TCP: dict[str, Any] = {**HTTP, "kind": "tcp_server"}
SOCKET: dict[str, Any] = {"kind": "socket", "topic": "orders", "connect": {"host": "localhost", "port": 9999}}
FILE: dict[str, Any] = {"kind": "file", "topic": "orders", "file": {"path": "/var/log/orders.log"}}
OWN: dict[str, Any] = {"kind": "feeds.orders:Orders", "topic": "orders", "arguments": {"url": "https://example.org", "n": [1]}}
KINDS = [HTTP, TCP, SOCKET, FILE, OWN]
CERTIFICATE = {"certificate": "/etc/pki/cert.pem", "key": "/etc/pki/key.pem"}
OPEN = {"host": "0.0.0.0", "port": 8080}  # noqa: S104 - what is refused here
SCHEMA = json_schema(Receiver)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def parse(settings: object, name: str = "orders") -> Receiver:
    return parse_receiver(name, settings, file="receivers/orders.yaml")


def refused(settings: object) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(settings)
    return str(caught.value)


def test_three_settings_make_a_receiver() -> None:
    """Everything else has a default."""
    assert parse(HTTP) == Receiver("orders", "http", "orders", listen=Listen(8080))
    assert parse(TCP) == Receiver("orders", "tcp_server", "orders", listen=Listen(8080))
    assert parse(SOCKET) == Receiver("orders", "socket", "orders", connect=Connect("localhost", 9999))
    assert parse(FILE) == Receiver("orders", "file", "orders", file=File("/var/log/orders.log"))
    assert parse(OWN) == Receiver("orders", OWN["kind"], "orders", arguments=OWN["arguments"])


@pytest.mark.parametrize("file", KINDS, ids=lambda file: file["kind"])
def test_each_kind_has_its_own_settings_and_refuses_those_of_another_by_name(file: dict[str, Any]) -> None:
    """Set, they would have no effect; the schema says the same."""
    others = {"listen", "connect", "file", "arguments"} - file.keys()
    for other in KINDS:
        for name in others & other.keys():
            wrong = {**file, name: other[name]}
            assert refused(wrong) == f"receivers/orders.yaml: {name}: is no setting of kind {file['kind']}; remove it"
            assert not VALIDATOR.is_valid(wrong)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**HTTP, "kind": "ftp"}, 'kind: expected "http", "tcp_server", "socket", "file", or module:Class'),
        ({**HTTP, "kind": "httpd:x:y"}, "kind: expected"),
        ({"kind": "http", "topic": "a"}, "listen: required by kind http, but missing"),
        ({"kind": "socket", "topic": "a"}, "connect: required by kind socket"),
        ({**HTTP, "listen": 8080}, "listen: expected a mapping of settings, got 8080"),
        ({**HTTP, "listen": {"port": 0}}, "listen.port: expected a port from 1 to 65535, got 0"),
        ({**TCP, "key": "Key"}, "key: is no setting of kind tcp_server"),
        ({**SOCKET, "overlap": 30}, "overlap: is no setting of kind socket"),
        ({**FILE, "tls": CERTIFICATE}, "tls: is no setting of kind file"),
        ({**OWN, "tls": CERTIFICATE}, "tls: is no setting of kind feeds.orders:Orders"),
        ({**OWN, "arguments": {"a b": 1}}, "arguments: expected a mapping of arguments by name"),
        ({**OWN, "arguments": {"a": float("nan")}}, "arguments: expected a mapping of arguments by name"),
        ({**OWN, "arguments": {"a": object()}}, "arguments: expected a mapping of arguments by name"),
        ({**OWN, "arguments": {1: 1}}, "arguments: expected a mapping of arguments by name"),
        ({**FILE, "instances": 2}, "instances: a file is followed by one instance, got 2"),
        ({**FILE, "file": {"path": "orders.log"}}, "file.path: expected an absolute path"),
        ({**HTTP, "lease": "1s"}, "lease: expected a duration from 10s to 7d, such as 30s, 15m or 2h"),
        ({**HTTP, "buffer_bytes": 2000, "max_record_bytes": 9}, "block.bytes: 1048576 is above buffer_bytes 2000; lower it"),
        (
            {**HTTP, "buffer_bytes": 2**21 + 1023},
            "buffer_bytes: 2098175 has no room for two records of max_record_bytes 1048576; set it to at least 2098176",
        ),
        ({**HTTP, "workers": {"queues": ["a b"]}}, "workers.queues[0]: expected the name of an Airflow queue"),
        ({**HTTP, "tls": {}}, "tls.certificate: required, but missing; a receiver that listens has a certificate with its key"),
        ({**HTTP, "tls": {"certificate": "/c"}}, "tls.key: required, but missing"),
        ({**SOCKET, "tls": {"key": "/k"}}, "tls.certificate: required, but missing; a certificate has its key"),
        (
            {**HTTP, "listen": OPEN},
            "listen.host: 0.0.0.0 is not of loopback, which requires tls; set it, or listen at 127.0.0.1",
        ),
        ({**HTTP, "listen": OPEN}, "which requires token or tls.ca (client certificates)"),
        ({**HTTP, "listen": OPEN, "token": "t"}, "which requires tls"),
        ({**HTTP, "listen": OPEN, "tls": CERTIFICATE}, "which requires token or tls.ca"),
        ({**TCP, "listen": OPEN, "tls": CERTIFICATE}, "which requires tls.ca (client certificates); set it"),
        ({**SOCKET, "connect": {"host": "feed.example.org", "port": 1}}, "connect.host: feed.example.org is not of loopback"),
    ],
)
def test_every_setting_refuses_what_it_cannot_take(settings: object, words: str) -> None:
    """In one sentence that names it."""
    assert words in refused(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {**HTTP, "listen": OPEN, "tls": CERTIFICATE, "token": "orders_token"},
        {**HTTP, "listen": OPEN, "tls": {**CERTIFICATE, "ca": "/etc/pki/ca.pem"}},
        {**TCP, "listen": OPEN, "tls": {**CERTIFICATE, "ca": "/etc/pki/ca.pem"}},
        {**HTTP, "token": "orders_token"},
        {**SOCKET, "connect": {"host": "feed.example.org", "port": 1}, "tls": {}},
        {**SOCKET, "connect": {"host": "::1", "port": 1}, "tls": {"ca": "/ca", **CERTIFICATE}},
    ],
)
def test_what_is_encrypted_and_proves_who_it_is_may_be_open(settings: dict[str, Any]) -> None:
    """A token or client certificates; a server that is connected to shows its own."""
    parse(settings)
    assert VALIDATOR.is_valid(settings)


def test_loopback_is_known_by_address() -> None:
    """A name may become any address."""
    assert all(map(is_loopback, ("127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "edge1", "localhost.example.org")))  # noqa: S104 - as above


def test_kinds_that_listen_overlap_and_those_that_read_do_not() -> None:
    """Two listeners share a port; two readers of one file or stream would land each record twice."""
    assert [parse(file).overlap_s for file in KINDS] == [30, 30, 0, 0, 0]
    assert parse({**HTTP, "overlap": 0}).overlap_s == 0
    assert parse({**OWN, "overlap": "1m"}).overlap_s == 60


def test_a_file_is_remembered_beside_itself_by_receiver() -> None:
    """Two receivers of one file have a place each, and no rotated file is taken for it."""
    assert parse(FILE).state_path == "/var/log/.orders.log.tidegate-orders"
    assert parse({**FILE, "file": {"path": "/a", "state": "/b"}}).state_path == "/b"
    assert parse(HTTP).state_path is None


def test_instances_prefer_the_hosts_in_turn() -> None:
    """None where the file names none."""
    assert parse({**HTTP, "instances": 3, "preferred_hosts": ["a", "b"]}).preferred == {0: "a", 1: "b", 2: "a"}
    assert parse({**HTTP, "instances": 2}).preferred == {0: None, 1: None}


def test_a_receiver_says_in_short_what_pushes() -> None:
    """For logs and `tidegate check`."""
    tls = Tls("/c", "/k")
    assert [str(parse(file)) for file in KINDS] == [
        "http://127.0.0.1:8080",
        "tcp://127.0.0.1:8080",
        "lines of localhost:9999",
        "lines of /var/log/orders.log",
        "feeds.orders:Orders",
    ]
    assert str(parse({**HTTP, "http": {"path": "/orders"}, "tls": CERTIFICATE})) == "https://127.0.0.1:8080/orders"
    assert str(Receiver("orders", "tcp_server", "orders", listen=Listen(1), tls=tls)) == "tcps://127.0.0.1:1"


def test_a_receiver_may_have_the_name_of_a_pipeline_and_no_dag_of_one() -> None:
    """DAGs of receivers have a suffix, which no other name has."""
    assert parse(HTTP).dag_id == "orders__receive"
    assert name_faults("orders") == []
    with pytest.raises(ConfigError, match='does not end with "__receive", the suffix of the DAGs that receive'):
        parse(HTTP, "orders__receive")
    with pytest.raises(ConfigError, match='does not end with "__receive"'):
        parse_pipeline("orders__receive", {}, file="x.yaml")


# Back-pressure

CREDIT: dict[str, Any] = {"policy": "credit", "pipeline": "loads", "max_backlog": 1000}
WATERMARK: dict[str, Any] = {**CREDIT, "policy": "watermark", "high": 0.8, "low": 0.2}
RATE: dict[str, Any] = {"policy": "rate", "pipeline": "loads", "safe_rate": 0, "silence": "1m"}


@pytest.mark.parametrize("stated", [{}, {"policy": "static"}, RATE, WATERMARK, CREDIT], ids=str)
def test_each_policy_has_its_own_settings(stated: dict[str, Any]) -> None:
    """Durations are seconds."""
    held = parse({**HTTP, "backpressure": stated}).backpressure
    expected = {**stated, "silence": 60} if "silence" in stated else stated
    assert held == Backpressure(**expected)
    VALIDATOR.validate({**HTTP, "backpressure": stated})


@pytest.mark.parametrize(
    ("stated", "fault"),
    [
        ({"pipeline": "loads"}, "pipeline: is no setting of policy static; remove it"),
        ({**RATE, "max_backlog": 1}, "max_backlog: is no setting of policy rate; remove it"),
        ({**CREDIT, "high": 0.5}, "high: is no setting of policy credit; remove it"),
        ({"policy": "rate"}, "pipeline: required by policy rate, but missing"),
        ({"policy": "credit", "pipeline": "loads"}, "max_backlog: required by policy credit, but missing"),
    ],
)
def test_settings_of_another_policy_and_missing_ones_are_faults(stated: dict[str, Any], fault: str) -> None:
    """The schema says the same."""
    assert refused({**HTTP, "backpressure": stated}) == f"receivers/orders.yaml: backpressure.{fault}"
    assert not VALIDATOR.is_valid({**HTTP, "backpressure": stated})


@pytest.mark.parametrize(
    ("more", "low", "high"), [({"high": 0.4}, 0.4, 0.4), ({"low": 0.9}, 0.9, 0.9), ({"low": 0.95}, 0.95, 0.9)]
)
def test_the_low_mark_is_below_the_high_one(more: dict[str, Any], low: float, high: float) -> None:
    """Also where one of them is by default."""
    stated = {**CREDIT, "policy": "watermark", **more}
    assert f"backpressure.low: {low} is not below high {high};" in refused({**HTTP, "backpressure": stated})
