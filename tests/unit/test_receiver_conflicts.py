"""Laws of receiver files beside each other: no two listen at one port of one host, or land the same lines in one topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegate.core.model.errors import ConfigError
from tidegate_receivers.config.conflicts import receiver_faults
from tidegate_receivers.config.files import load_receivers, receivers_of
from tidegate_receivers.config.receiver import Connect, File, Listen, Receiver, Workers

ALSO = "listen.port: 8080 is also the port of receiver {}; choose another port"
ANY = "0.0.0.0"  # noqa: S104 - nothing listens here


def receiver(name: str, port: int, host: str = "127.0.0.1") -> Receiver:
    return Receiver(name, "tcp_server", "orders", listen=Listen(port, host))


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", ANY, True),
        ("::", "10.0.0.1", True),
        ("localhost", "127.0.0.1", True),
        ("127.0.0.1", "edge1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("10.0.0.1", "::1", False),
    ],
)
def test_two_receivers_of_one_port_are_both_at_fault_unless_their_addresses_never_meet(
    one: str, other: str, *, meet: bool
) -> None:
    """Each would get connections of the other. A name may be any address."""
    faults = receiver_faults([receiver("b", 8080, other), receiver("a", 8080, one)])
    assert faults == ({"a": [ALSO.format("b")], "b": [ALSO.format("a")]} if meet else {})


def test_other_ports_and_receivers_that_do_not_listen_are_no_conflict() -> None:
    """Whatever their number."""
    assert receiver_faults([receiver("a", 1), receiver("b", 2), Receiver("c", "m:C", "t"), Receiver("d", "m:C", "t")]) == {}


FOLLOWS = {"kind": "file", "file": File("/var/log/a.log")}
READS = {"kind": "socket", "connect": Connect("127.0.0.1", 9)}


@pytest.mark.parametrize(
    ("one", "other", "doubled"),
    [
        (FOLLOWS, FOLLOWS, True),
        (FOLLOWS, {**FOLLOWS, "file": File("/var/log/../log/a.log", state="/b")}, True),
        (READS, READS, True),
        (READS, FOLLOWS, False),
        (FOLLOWS, {**FOLLOWS, "file": File("/var/log/b.log")}, False),
        (READS, {**READS, "connect": Connect("127.0.0.1", 8)}, False),
        (FOLLOWS, {**FOLLOWS, "topic": "others"}, False),
        (FOLLOWS, {**FOLLOWS, "connection": "other"}, False),
        ({**FOLLOWS, "preferred_hosts": ("h",)}, FOLLOWS, True),
        ({**FOLLOWS, "preferred_hosts": ("h",)}, {**FOLLOWS, "preferred_hosts": ("i",)}, False),
        (FOLLOWS, {**FOLLOWS, "workers": Workers(queues=("edge",))}, False),
    ],
)
def test_two_receivers_that_would_land_the_same_lines_are_both_at_fault(
    one: dict[str, Any], other: dict[str, Any], *, doubled: bool
) -> None:
    """Unless they are meant for different hosts, each with a file of its own."""
    found = receiver_faults(Receiver(name, **{"topic": "orders", **of}) for name, of in (("a", one), ("b", other)))
    assert {name: [fault.split(" lands ")[0] for fault in faults] for name, faults in found.items()} == (
        {"a": ["topic: receiver b"], "b": ["topic: receiver a"]} if doubled else {}
    )


def test_receivers_are_read_from_their_folder_and_no_file_hides_another(tmp_path: Path) -> None:
    """What is wrong with a file alone, beside the others, or with its name."""
    assert receivers_of(tmp_path / "pipelines") == tmp_path / "receivers"
    assert load_receivers(tmp_path / "receivers", {}) == {}
    http = "kind: http\ntopic: orders\nlisten: {port: %d}\n"
    files = {"a": http % 1, "b": http % 2, "c": http % 2, "d": "kind: [", "e": ""}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    found = {file.stem: value for file, value in load_receivers(tmp_path, {}).items()}
    assert list(found) == list(files)
    assert found["a"] == Receiver("a", "http", "orders", listen=Listen(1))
    errors = {name: str(value) for name, value in found.items() if isinstance(value, ConfigError)}
    assert errors["b"].endswith("b.yaml: listen.port: 2 is also the port of receiver c; choose another port")
    assert errors["c"].endswith("c.yaml: listen.port: 2 is also the port of receiver b; choose another port")
    assert "d.yaml: not valid YAML: line" in errors["d"]
    assert errors["e"].endswith("e.yaml: is empty; kind and topic are required")
