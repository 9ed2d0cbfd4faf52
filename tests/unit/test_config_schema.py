"""Laws of receiver files, and of the editor's JSON Schemas beside the validators: a file is valid for both or for neither."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_config import MINIMAL
from tidegate.core.config.declared import json_schema
from tidegate.core.config.names import name_faults
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import ConfigError
from tidegate.core.model.uris import is_loopback
from tidegate_receivers.config.files import parse_receiver
from tidegate_receivers.config.receiver import Connect, File, Listen, Receiver, ReceiverBackpressure

HTTP: dict[str, Any] = {"kind": "http", "topic": "orders", "listen": {"port": 8080}}
TCP: dict[str, Any] = {**HTTP, "kind": "tcp_server"}
SOCKET: dict[str, Any] = {"kind": "socket", "topic": "orders", "connect": {"host": "localhost", "port": 9999}}
FILE: dict[str, Any] = {"kind": "file", "topic": "orders", "file": {"path": "/var/log/orders.log"}}
OWN: dict[str, Any] = {"kind": "feeds.orders:Orders", "topic": "orders", "arguments": {"url": "https://example.org", "n": [1]}}
KINDS = [HTTP, TCP, SOCKET, FILE, OWN]
CERTIFICATE = {"certificate": "/etc/pki/cert.pem", "key": "/etc/pki/key.pem"}
OPEN = {"host": "0.0.0.0", "port": 8080}  # noqa: S104 - what is refused here
CREDIT: dict[str, Any] = {"policy": "credit", "pipeline": "loads", "max_backlog": 1000}
WATERMARK: dict[str, Any] = {**CREDIT, "policy": "watermark", "high": 0.8, "low": 0.2}

Way = tuple[str, ...]
Kind = type[Pipeline | Receiver]
PIPELINES = Path(__file__).parents[2] / "dags" / "pipelines"
PARSERS: dict[Kind, Callable[..., object]] = {Pipeline: parse_pipeline, Receiver: parse_receiver}
VALIDATORS = {kind: jsonschema.Draft202012Validator(json_schema(kind)) for kind in PARSERS}
# in each of them other settings may be given: one of `topics`, `pattern` and `assign`, and what goes with another setting
FILES: list[tuple[Kind, dict[str, Any]]] = [
    *((Receiver, file) for file in [*KINDS, {**HTTP, "tls": CERTIFICATE, "http": {}}, {**SOCKET, "tls": {}}]),
    (Receiver, {**HTTP, "backpressure": CREDIT}),
    (Pipeline, MINIMAL),
    (Pipeline, {**MINIMAL, "source": {"pattern": "orders_.*"}, "limits": {"min_records": 10}}),
    (Pipeline, {**MINIMAL, "source": {"assign": {"orders": [0]}}, "schedule": {"lag": 10}}),
    (
        Pipeline,
        {**MINIMAL, "schedule": {"max_delay": "15m"}, "maintenance": {"schedule": "@daily"}, "announce": {"grace": "15m"}},
    ),
    (Pipeline, {**MINIMAL, "spark": {"max_executors": 10_000}, "dedupe": {"window": 10_000}}),
    *((Pipeline, {**MINIMAL, "backpressure": {"policy": name}}) for name in ("static", "pid", "fixed_point", "target")),
]
ANYTHING: list[Any] = [
    None,
    *(True, False),
    *(-1, 0, 1, 2, 10**6, 2**31, 2**64, -0.5, 0.5),
    *("", " ", "x", "A", "1", "a.b", "a.b.c", "a.b:c", "a:", "ä", "x y", "*"),
    *("2013-01-01T00:00:00Z", "0 6 * * *", "@daily", "15m", "/", "/x"),
    *([], [None], [1], ["x"], ["x", "x"], ["A", "b"], ["a.b.c"], ["a.b:c"], [""], [["x"]], "x" * 300, "x" * 2000, ["x" * 300]),
    *(MINIMAL["source"], MINIMAL["sink"]),
    *({}, {"x": 1}, {"x": [0]}, {"x": [0, 0]}, {"x": []}, {"x": ["0"]}, {"": [0]}, {"x": {"0": 1}}),
    *({"timestamp": 0}, {"timestamp": "2013-01-01"}, {"timestamp": None}, {"timestamp": 0, "offsets": {}}),
    *({"lag": 1}, {"lag": None}, {"lag": 1, "max_delay": "m"}, {"poll": 2}),
    *({"max_delay": "1.5h"}, {"max_delay": 9, "poll": "2s"}),
    *({"offsets": {}}, {"offsets": {"x": {"0": 1}}}, {"offsets": {"x": {"0": -1}}}, {"offsets": {"x": 1}}),
]
# The grammar of cron, regular expressions that end soon, times, durations, addresses, sums: only the validator knows them.
SAID_IN_PART = {
    *("lease", "drain", "overlap", "listen.idle", "block.interval", "workers.wait", "arguments", "backpressure.silence"),
    *("tls", "tls.certificate", "tls.key", "tls.ca"),
    *("listen.host", "connect.host", "block.bytes", "buffer_bytes", "max_record_bytes"),
    *("schedule", "schedule.max_delay", "schedule.poll", "source.pattern", "source.exclude", "source.start"),
    *("maintenance.schedule", "maintenance.keep", "maintenance.keep_orphans", "announce.grace"),
    *("quarantine", "quarantine.table", "quarantine.budget", "contract.types", "contract.missing"),
}
# Settings that exclude or need another one. An empty one counts as absent for the validator, as present for the schema.
IN_RELATION = {
    *("source.topics", "source.pattern", "source.assign", "source.exclude", "limits.max_delay_s"),
    *("schedule.lag", "schedule.max_delay", "limits.min_records", "spark.min_executors"),
    *("backpressure.pipeline", "backpressure.max_backlog"),
}


def settings_of(schema: dict[str, Any], path: Way = (), kinds: Any = None) -> Iterator[tuple[Way, dict[str, Any]]]:
    """Each setting and each section of a schema, with the way to it."""
    kinds = kinds or schema["$defs"]
    for name, stated in schema.get("properties", {}).items():
        refs = re.findall(r'"#/\$defs/(\w+)"', json.dumps(stated))
        inner = stated | kinds[refs[0]] if refs else stated
        yield (*path, name), inner
        yield from settings_of(inner, (*path, name), kinds)


SETTINGS = {(kind, path): schema for kind in PARSERS for path, schema in settings_of(json_schema(kind))}
SECTIONS = [case for case, schema in SETTINGS.items() if "properties" in schema]
SINGLE = [path for kind, path in SETTINGS if kind is Pipeline and (kind, path) not in SECTIONS]


def named(case: object) -> str:
    return ".".join(case) if isinstance(case, tuple) else case.__name__ if isinstance(case, type) else str(case)


def values_of(schema: dict[str, Any]) -> Iterator[Any]:
    """Values of every kind, and those on both sides of each bound that the schema names."""
    yield from ANYTHING
    yield from schema.get("enum", [])
    yield from (schema[bound] + by for bound in ("minimum", "maximum") if bound in schema for by in (-1, 0, 1))
    yield from ("x" * (schema[length] + by) for length in ("minLength", "maxLength") if length in schema for by in (-1, 0, 1))
    yield from [schema["default"]] if "default" in schema else []
    yield from ([value] for value in (values_of(schema["items"]) if "items" in schema else ()))


VALUES = {case: list(values_of(schema)) for case, schema in SETTINGS.items()}
for section in ("listen", "connect", "file", "tls"):  # they are not valid when they are empty
    VALUES[Receiver, (section,)] += [file[section] for _, file in FILES if section in file]
VALUES[Pipeline, ("dedupe",)] += [{"window": 10}]


def changed(file: dict[str, Any], path: Way, value: object) -> dict[str, Any]:
    """The file with another value of a setting; its section is made where it is missing."""
    made = copy.deepcopy(file)
    section = made
    for name in path[:-1]:
        section = section.setdefault(name, {})
    section[path[-1]] = value
    return made


def agree(kind: Kind, file: dict[str, Any], changes: Mapping[Way, object]) -> bool:
    """Whether the file with these values is valid, of which schema and validator have the same opinion."""
    for path, value in changes.items():
        file = changed(file, path, value)
    accepted = True
    try:
        PARSERS[kind]("orders", file, file="orders.yaml")
    except ConfigError:
        accepted = False
    valid, names = VALIDATORS[kind].is_valid(file), {".".join(path): value for path, value in changes.items()}
    empty = any(name in IN_RELATION and value in (None, []) for name, value in names.items())
    assert empty or not SAID_IN_PART.isdisjoint(names) or accepted == valid, file
    assert valid or empty or not accepted, file
    return accepted


@pytest.mark.parametrize(("kind", "path"), SETTINGS, ids=named)
def test_schema_and_validator_agree_on_what_is_valid(kind: Kind, path: Way) -> None:
    """Any value, in receivers of each kind and in pipelines by what their section has; some are valid, and some are not."""
    files = [file for of, file in FILES if of is kind]
    if kind is Pipeline:
        files = [file for file in files if file is MINIMAL or file.get(path[0]) != MINIMAL.get(path[0])]
    assert {agree(kind, file, {path: value}) for file in files for value in VALUES[kind, path]} == {True, False}


@given(
    st.sampled_from([(kind, file) for kind, file in FILES if kind is Pipeline]),
    st.lists(st.sampled_from([(path, value) for path in SINGLE for value in VALUES[Pipeline, path]])).map(dict),
)
def test_schema_and_validator_agree_on_settings_together(of: tuple[Kind, dict[str, Any]], changes: dict[Way, object]) -> None:
    """Whatever one of them is, the others count too."""
    agree(*of, changes)


@pytest.mark.parametrize(("kind", "section"), [(Pipeline, ()), (Receiver, ()), *SECTIONS], ids=named)
def test_an_unknown_setting_is_refused_by_both(kind: Kind, section: Way) -> None:
    assert not any(agree(of, file, {(*section, "unheard_of"): 1}) for of, file in FILES if of is kind)


def test_the_schema_beside_the_pipelines_is_the_librarys() -> None:
    """`tidegate check --schema` writes it."""
    written = PIPELINES.joinpath("pipeline.schema.json").read_text()
    assert written == json.dumps(json_schema(Pipeline), indent=2) + "\n"


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


def test_a_kind_says_in_short_what_pushes_and_those_that_listen_overlap() -> None:
    """Two listeners share a port; two readers of one file or stream would land each record twice."""
    listens = [*KINDS, {**HTTP, "overlap": 0}, {**OWN, "overlap": "1m"}]
    assert [parse(file).overlap_s for file in listens] == [30, 30, 0, 0, 0, 0, 60]
    secured = [{**HTTP, "http": {"path": "/orders"}, "tls": CERTIFICATE}, {**TCP, "tls": CERTIFICATE}]
    assert [str(parse(file)) for file in (*KINDS, *secured)] == [
        *("http://127.0.0.1:8080", "tcp://127.0.0.1:8080", "lines of localhost:9999", "lines of /var/log/orders.log"),
        *("feeds.orders:Orders", "https://127.0.0.1:8080/orders", "tcps://127.0.0.1:8080"),
    ]


@pytest.mark.parametrize("file", KINDS, ids=lambda file: file["kind"])
def test_each_kind_has_its_own_settings_and_refuses_those_of_another_by_name(file: dict[str, Any]) -> None:
    """Set, they would have no effect; the schema says the same."""
    others = {"listen", "connect", "file", "arguments"} - file.keys()
    for other in KINDS:
        for name in others & other.keys():
            wrong = {**file, name: other[name]}
            assert refused(wrong) == f"receivers/orders.yaml: {name}: is no setting of kind {file['kind']}; remove it"
            assert not VALIDATORS[Receiver].is_valid(wrong)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({**HTTP, "kind": "ftp"}, 'kind: expected "http", "tcp_server", "socket", "file", or module:Class'),
        ({**HTTP, "kind": "httpd:x:y"}, "kind: expected"),
        ({"kind": "http", "topic": "a"}, "listen: required by kind http, but missing"),
        ({"kind": "socket", "topic": "a"}, "connect: required by kind socket"),
        ({**HTTP, "listen": {"port": 0}}, "listen.port: expected a port from 1 to 65535, got 0"),
        ({**TCP, "key": "Key"}, "key: is no setting of kind tcp_server"),
        ({**SOCKET, "overlap": 30}, "overlap: is no setting of kind socket"),
        ({**FILE, "tls": CERTIFICATE}, "tls: is no setting of kind file"),
        ({**OWN, "tls": CERTIFICATE}, "tls: is no setting of kind feeds.orders:Orders"),
        *(
            ({**OWN, "arguments": wrong}, "arguments: expected a mapping of arguments by name")
            for wrong in ({"a b": 1}, {"a": float("nan")}, {"a": object()}, {1: 1})
        ),
        ({**FILE, "instances": 2}, "instances: a file is followed by one instance, got 2"),
        ({**FILE, "file": {"path": "orders.log"}}, "file.path: expected an absolute path"),
        ({**HTTP, "lease": "1s"}, "lease: expected a duration from 10s to 7d, such as 30s, 15m or 2h"),
        ({**HTTP, "buffer_bytes": 2000, "max_record_bytes": 9}, "block.bytes: 1048576 is above buffer_bytes 2000; lower it"),
        ({**HTTP, "buffer_bytes": 2**21 + 1023}, "buffer_bytes: 2098175 has no room for two records of max_record_bytes"),
        ({**HTTP, "workers": {"queues": ["a b"]}}, "workers.queues[0]: expected the name of an Airflow queue"),
        ({**HTTP, "tls": {}}, "tls.certificate: required, but missing; a receiver that listens has a certificate"),
        ({**HTTP, "tls": {"certificate": "/c"}}, "tls.key: required, but missing"),
        ({**SOCKET, "tls": {"key": "/k"}}, "tls.certificate: required, but missing; a certificate has its key"),
        ({**HTTP, "listen": OPEN}, "listen.host: 0.0.0.0 is not of loopback, which requires tls; set it"),
        ({**HTTP, "listen": OPEN}, "which requires token or tls.ca (client certificates)"),
        ({**HTTP, "listen": OPEN, "token": "t"}, "which requires tls"),
        ({**HTTP, "listen": OPEN, "tls": CERTIFICATE}, "which requires token or tls.ca"),
        ({**TCP, "listen": OPEN, "tls": CERTIFICATE}, "which requires tls.ca (client certificates); set it"),
        ({**SOCKET, "connect": {"host": "feed.example.org", "port": 1}}, "connect.host: feed.example.org is not of loopback"),
        ({**HTTP, "backpressure": {**WATERMARK, "high": 0.2}}, "backpressure.low: 0.2 is not below high 0.2;"),
        ({**HTTP, "backpressure": {**CREDIT, "policy": "watermark", "high": 0.4}}, "low: 0.4 is not below high 0.4;"),
        ({**HTTP, "backpressure": {**CREDIT, "policy": "watermark", "low": 0.95}}, "low: 0.95 is not below high 0.9;"),
    ],
)
def test_every_setting_refuses_what_it_cannot_take(settings: object, words: str) -> None:
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
    assert VALIDATORS[Receiver].is_valid(settings)


def test_loopback_is_known_by_address() -> None:
    """A name may become any address."""
    assert all(map(is_loopback, ("127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "edge1", "localhost.example.org")))  # noqa: S104 - as above


def test_a_file_is_remembered_beside_itself_by_receiver() -> None:
    """Two receivers of one file have a place each, and no rotated file is taken for it."""
    stated = {**FILE, "file": {"path": "/a", "state": "/b"}}
    places = [parse(file).state_path for file in (FILE, stated, HTTP)]
    assert places == ["/var/log/.orders.log.tidegate-orders", "/b", None]


@pytest.mark.parametrize(("hosts", "preferred"), [(["a", "b"], {0: "a", 1: "b", 2: "a"}), ([], {0: None, 1: None, 2: None})])
def test_instances_prefer_the_hosts_in_turn(hosts: list[str], preferred: dict[int, str | None]) -> None:
    """None where the file names none."""
    assert parse({**HTTP, "instances": 3, **({"preferred_hosts": hosts} if hosts else {})}).preferred == preferred


def test_a_receiver_may_have_the_name_of_a_pipeline_and_no_dag_of_one() -> None:
    """DAGs of receivers have a suffix, which no other name has."""
    assert (parse(HTTP).dag_id, name_faults("orders")) == ("orders__receive", [])
    for refuses in (lambda: parse(HTTP, "orders__receive"), lambda: parse_pipeline("orders__receive", {}, file="x.yaml")):
        with pytest.raises(ConfigError, match='does not end with "__receive", the suffix of the DAGs that receive'):
            refuses()


RATE: dict[str, Any] = {"policy": "rate", "pipeline": "loads", "safe_rate": 0, "silence": "1m"}


@pytest.mark.parametrize(
    ("stated", "fault"),
    [
        *((stated, None) for stated in ({}, {"policy": "static"}, RATE, WATERMARK, CREDIT)),
        ({"pipeline": "loads"}, "pipeline: is no setting of policy static; remove it"),
        ({**RATE, "max_backlog": 1}, "max_backlog: is no setting of policy rate; remove it"),
        ({**CREDIT, "high": 0.5}, "high: is no setting of policy credit; remove it"),
        ({"policy": "rate"}, "pipeline: required by policy rate, but missing"),
        ({"policy": "credit", "pipeline": "loads"}, "max_backlog: required by policy credit, but missing"),
    ],
)
def test_each_policy_has_its_own_settings_and_needs_them(stated: dict[str, Any], fault: str | None) -> None:
    """The schema says the same. Durations are seconds."""
    file = {**HTTP, "backpressure": stated}
    assert VALIDATORS[Receiver].is_valid(file) == (fault is None)
    if fault is None:
        expected = {**stated, "silence": 60} if "silence" in stated else stated
        assert parse(file).backpressure == ReceiverBackpressure(**expected)
    else:
        assert refused(file) == f"receivers/orders.yaml: backpressure.{fault}"
