"""Who can reach an address."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from its own host alone. Of names only `localhost` is."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
