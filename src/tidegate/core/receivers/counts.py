"""Counts of records, places and bytes are whole numbers."""

from __future__ import annotations

from tidegate.core.errors import RequestError


def check_count(name: str, value: int, *, least: int = 0) -> None:
    """Refuse what is not a whole number from `least`.

    Raises:
        RequestError: the value is below `least` or not an `int`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise RequestError(
            f"{name}: expected a whole number from {least}, got {value!r}", fix=f"Pass an int of at least {least}"
        )
