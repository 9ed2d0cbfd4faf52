"""The editor's JSON Schema and the library's validator: one file is valid for both or for neither.

The settings are those that the schema lists (`test_docs.py` holds the list against the settings' own), so a new setting is
varied from the day it is added. Each gets values of every kind, and the bounds, lengths and words that its own schema names.
"""

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

from tests.unit.test_receiver_config import CERTIFICATE, CREDIT, HTTP, KINDS, SOCKET
from tidegate.core.config.parse import parse_pipeline
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.schema import json_schema
from tidegate.core.model.errors import ConfigError
from tidegate_receivers.config.files import parse_receiver
from tidegate_receivers.config.receiver import Receiver

Way = tuple[str, ...]
Kind = type[Pipeline | Receiver]
PIPELINES = Path(__file__).parents[2] / "dags" / "pipelines"
PARSERS: dict[Kind, Callable[..., object]] = {Pipeline: parse_pipeline, Receiver: parse_receiver}
VALIDATORS = {kind: jsonschema.Draft202012Validator(json_schema(kind)) for kind in PARSERS}
MINIMAL: dict[str, Any] = {
    "source": {"topics": ["orders"]},
    "transform": "transforms.orders:rows",
    "sink": {"table": "lake.shop.orders"},
}
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
    *(
        "",
        " ",
        "x",
        "A",
        "1",
        "a.b",
        "a.b.c",
        "a.b:c",
        "a:",
        "ä",
        "x y",
        "*",
        "2013-01-01T00:00:00Z",
        "0 6 * * *",
        "@daily",
        "15m",
        "/",
        "/x",
    ),
    *([], [None], [1], ["x"], ["x", "x"], ["A", "b"], ["a.b.c"], ["a.b:c"], [""], [["x"]], "x" * 300, "x" * 2000, ["x" * 300]),
    *(MINIMAL["source"], MINIMAL["sink"]),
    *({}, {"x": 1}, {"x": [0]}, {"x": [0, 0]}, {"x": []}, {"x": ["0"]}, {"": [0]}, {"x": {"0": 1}}),
    *({"timestamp": 0}, {"timestamp": "2013-01-01"}, {"timestamp": None}, {"timestamp": 0, "offsets": {}}),
    *(
        {"lag": 1},
        {"lag": None},
        {"max_delay": "1.5h"},
        {"max_delay": 9, "poll": "2s"},
        {"poll": 2},
        {"lag": 1, "max_delay": "m"},
    ),
    *({"offsets": {}}, {"offsets": {"x": {"0": 1}}}, {"offsets": {"x": {"0": -1}}}, {"offsets": {"x": 1}}),
]
# The grammar of cron, regular expressions that end soon, times, durations, addresses, sums: only the validator knows them.
SAID_IN_PART = {
    *("lease", "drain", "overlap", "listen.idle", "block.interval", "workers.wait", "arguments", "backpressure.silence"),
    *("tls", "tls.certificate", "tls.key", "tls.ca"),
    *("listen.host", "connect.host", "block.bytes", "buffer_bytes", "max_record_bytes"),
    *("schedule", "schedule.max_delay", "schedule.poll", "source.pattern", "source.exclude", "source.start"),
    *("maintenance.schedule", "maintenance.keep", "maintenance.keep_orphans", "announce.grace"),
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
SECTIONS = {case for case, schema in SETTINGS.items() if "properties" in schema}
SINGLE = [path for kind, path in SETTINGS if kind is Pipeline and (kind, path) not in SECTIONS]


def named(case: object) -> str:
    return ".".join(case) if isinstance(case, tuple) else case.__name__ if isinstance(case, type) else str(case)


def values_of(schema: dict[str, Any]) -> Iterator[Any]:
    """Values of every kind, and those on both sides of each bound that the schema names."""
    yield from ANYTHING
    yield from schema.get("enum", [])
    for bound in ("minimum", "maximum"):
        if bound in schema:
            yield from (schema[bound] - 1, schema[bound], schema[bound] + 1)
    for length in ("minLength", "maxLength"):
        if length in schema:
            yield from ("x" * size for size in (schema[length] - 1, schema[length], schema[length] + 1))
    if "default" in schema:
        yield schema["default"]
    if "items" in schema:
        yield from ([value] for value in values_of(schema["items"]))


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
    try:
        PARSERS[kind]("orders", file, file="orders.yaml")
        accepted = True
    except ConfigError:
        accepted = False
    valid = VALIDATORS[kind].is_valid(file)
    names = {".".join(path): value for path, value in changes.items()}
    empty = any(name in IN_RELATION and value in (None, []) for name, value in names.items())
    if not empty and SAID_IN_PART.isdisjoint(names):
        assert accepted == valid, file
    assert valid or empty or not accepted, file
    return accepted


@pytest.mark.parametrize(("kind", "path"), SETTINGS, ids=named)
def test_schema_and_validator_agree_on_what_is_valid(kind: Kind, path: Way) -> None:
    """Any value of any setting, in files of each kind; some of the values are valid, and some are not."""
    files = [file for of, file in FILES if of is kind]
    assert {agree(kind, file, {path: value}) for file in files for value in VALUES[kind, path]} == {True, False}


@given(
    st.sampled_from([(kind, file) for kind, file in FILES if kind is Pipeline]),
    st.lists(st.sampled_from([(path, value) for path in SINGLE for value in VALUES[Pipeline, path]])).map(dict),
)
def test_schema_and_validator_agree_on_settings_together(of: tuple[Kind, dict[str, Any]], changes: dict[Way, object]) -> None:
    """Whatever one of them is, the others count too."""
    agree(*of, changes)


@pytest.mark.parametrize(("kind", "path"), SETTINGS, ids=named)
def test_an_unknown_setting_is_refused_by_both(kind: Kind, path: Way) -> None:
    """Beside each setting, and in each section."""
    beside = (*path, "unheard_of") if (kind, path) in SECTIONS else (*path[:-1], "unheard_of")
    assert not any(agree(of, file, {beside: 1}) for of, file in FILES if of is kind)


def test_the_schema_beside_the_pipelines_is_the_librarys() -> None:
    """`tidegate check --schema` writes it."""
    written = PIPELINES.joinpath("pipeline.schema.json").read_text()
    assert written == json.dumps(json_schema(), indent=2) + "\n"
