"""Conflicts between receiver files: which of them would listen at one port.

Instances share a port, so that a run can take over from the last one. Two receivers that share one would each get a part of the
other's connections, and no error tells of it: so files that could meet on a host are refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from itertools import combinations

from tidegate.core.config.receiver import Listen, Receiver


def port_faults(receivers: Iterable[Receiver]) -> dict[str, list[str]]:
    """What is wrong with the ports of these receivers, by the name of the receiver: the setting, and a sentence."""
    faults: dict[str, list[str]] = {}
    for one, other in combinations(sorted(receivers, key=lambda receiver: receiver.name), 2):
        for this, that in ((one, other), (other, one)):
            if this.listen is not None and that.listen is not None and _meet(this.listen, that.listen):
                faults.setdefault(this.name, []).append(
                    f"listen.port: {this.listen.port} is also the port of receiver {that.name}; choose another port"
                )
    return faults


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
