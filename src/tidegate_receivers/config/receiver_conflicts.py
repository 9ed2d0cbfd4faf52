"""Conflicts between receiver files: which of them would listen at one port, or land the lines of one source in one topic.

Instances share a port, so that a run can take over from the last one. Two receivers that share one would each get a part of the
other's connections, and two that read one file would each land its lines. No error tells of either: so files that could meet on
a host are refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from itertools import permutations
from posixpath import normpath

from tidegate_receivers.config.receiver import Listen, Receiver


def receiver_faults(receivers: Iterable[Receiver]) -> dict[str, list[str]]:
    """What is wrong with these receivers beside each other, by the name of the receiver: the setting, and a sentence."""
    faults: dict[str, list[str]] = {}
    for this, that in permutations(sorted(receivers, key=lambda receiver: receiver.name), 2):
        if this.listen is not None and that.listen is not None and _meet(this.listen, that.listen):
            fault = f"listen.port: {this.listen.port} is also the port of receiver {that.name}; choose another port"
            faults.setdefault(this.name, []).append(fault)
        if _lands(this) == _lands(that) is not None and not _apart(this, that):
            doubled = f"receiver {that.name} lands {that} in {that.topic} too, so that each would be there twice"
            fault = f"topic: {doubled}; remove one of the two, or let them run in different workers.queues"
            faults.setdefault(this.name, []).append(fault)
    return faults


def _lands(this: Receiver) -> tuple[object, ...] | None:
    """Which lines are landed, and where; None where other receivers get other records."""
    source = this.connect if this.file is None else normpath(this.file.path)
    return None if source is None else (source, this.topic, this.connection)


def _apart(this: Receiver, that: Receiver) -> bool:
    """Whether they are meant for different hosts, each of which has a file, or a server, of that name."""
    of_this, of_that = {*this.preferred_hosts}, {*that.preferred_hosts}
    hosts = of_this and of_that and of_this.isdisjoint(of_that)
    return bool(hosts) or {*this.workers.queues}.isdisjoint(that.workers.queues)


def _meet(this: Listen, that: Listen) -> bool:
    """Whether both listen at one address of a host that runs both. A name may be any address."""
    if this.port != that.port:
        return False
    one, other = _address(this.host), _address(that.host)
    return one is None or other is None or one == other or one.is_unspecified or other.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
