"""How saved state is written: versioned, checksummed JSON with sorted keys.

    {"body": {...}, "kind": "cursor", "sha256": "<of the body>", "version": 1}

The checksum finds a value that was edited by hand or cut short; the version lets a newer library refuse politely. Equal
values give equal text, so a copy can be compared as text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tidegate.errors import StateCorrupt, TidegateError

VERSION = 1


def encode(kind: str, body: Mapping[str, Any]) -> str:
    """One line of JSON that `decode` reads back."""
    return _dumps({"kind": kind, "version": VERSION, "sha256": _checksum(body), "body": body})


def decode(kind: str, text: str, *, key: str, repair: str) -> dict[str, Any]:
    """The body of a value that `encode` wrote.

    Args:
        kind: what the value has to be.
        text: what the store holds.
        key: where it was found, for the error.
        repair: the sentence that tells how to repair it, for the error.

    Raises:
        StateCorrupt: not JSON, another kind, another version, or another checksum; the message names the exact fault.
    """

    def corrupt(fault: str) -> StateCorrupt:
        return StateCorrupt(f"{key}: {fault}", fix=repair, key=key)

    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise corrupt(f"not JSON ({error.msg} at character {error.pos} of {len(text)})") from error
    if not isinstance(value, dict) or not {"kind", "version", "sha256", "body"} <= value.keys():
        raise corrupt("not a saved value (it has no kind, version, sha256 and body)")
    if value["kind"] != kind:
        raise corrupt(f"holds a {value['kind']!r}, expected a {kind!r}")
    if value["version"] != VERSION:
        age = "newer" if isinstance(value["version"], int) and value["version"] > VERSION else "older"
        raise corrupt(f"format version {value['version']!r} is {age} than this library's {VERSION}")
    if not isinstance(value["body"], dict) or value["sha256"] != _checksum(value["body"]):
        raise corrupt("the checksum does not fit: the value was changed after it was written")
    return value["body"]


class Shape:
    """A `with` block that reads a value's fields: whatever the value lacks becomes one `StateCorrupt` with this text.

    Args:
        fault: what is wrong, for the error; the cause is told behind it.
        fix: the error's fix.
    """

    def __init__(self, fault: str, fix: str) -> None:
        self._fault = fault
        self._fix = fix

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Raises StateCorrupt: the block met a missing field, or one of another type."""
        told = isinstance(error, StateCorrupt)
        if isinstance(error, (KeyError, ValueError, TypeError, AttributeError, TidegateError)) and not told:
            raise StateCorrupt(f"{self._fault} ({error!r})", fix=self._fix) from error


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_dumps(body).encode()).hexdigest()[:16]


def _dumps(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
