"""Ports on the loopback."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from tidegate.core.model.errors import PlatformError
from tidegate_local import sockets


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Somebody who listens on the loopback."""
    with socket.create_server((sockets.LOOPBACK, sockets.choose_port())) as made:
        yield made


def test_a_chosen_port_is_free_and_below_the_ports_of_outgoing_connections() -> None:
    """Linux gives those from 32768 on."""
    port = sockets.choose_port()
    assert sockets.is_free(port)
    assert port < 32_768


def test_a_port_that_is_taken_is_not_free_and_its_owner_is_named(listener: socket.socket) -> None:
    """We took it."""
    port = listener.getsockname()[1]
    assert not sockets.is_free(port)
    assert sockets.answers(port)
    assert str(os.getpid()) in sockets.owner_of(port)


def test_a_port_that_nobody_has_answers_nothing_and_has_no_name() -> None:
    """A message can still be made without an owner."""
    port = sockets.choose_port()
    assert not sockets.answers(port)
    assert sockets.owner_of(port) == "another process"


def test_a_port_that_is_promised_is_not_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one port to choose from, and that one taken, there is none."""
    monkeypatch.setattr(sockets, "CHOSEN_FROM", range(20_000, 20_001))
    with pytest.raises(PlatformError, match="No free port"):
        sockets.choose_port({20_000})
