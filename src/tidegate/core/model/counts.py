"""Whole numbers: counts, offsets and limits. Python's `bool` is an `int`, but no count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from tidegate.core.model.errors import RequestError


def is_whole(value: object, least: int = 0, most: int | None = None) -> TypeGuard[int]:
    """Whether the value is an `int`, no `bool`, of at least `least` and at most `most`."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
        return False
    return least <= value and (most is None or value <= most)


def check_count(name: str, value: int, *, least: int = 0) -> None:
    """Refuse what is not a whole number (an `int`) from `least`: a RequestError."""
    if not is_whole(value, least):
        raise RequestError(
            f"{name}: expected a whole number from {least}, got {value!r}", fix=f"Pass an int of at least {least}"
        )


def check_limits(limits: Mapping[str, int | None]) -> None:
    """Refuse limits, by name, that are neither None nor a whole number from 1: a RequestError."""
    for name, limit in limits.items():
        if limit is not None:
            check_count(name, limit, least=1)
