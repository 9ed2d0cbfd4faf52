"""How saved state is written: text that people can read, and a packed copy of it that is read back.

    tidegate 2 {"body":{...},"kind":"cursor"} eNqrVkrKT6lUs...

Airflow's REST API decodes every Variable that is JSON, and masks the values of keys such as `password-resets`; in any text it
masks each password that it knows, which may be a common word. So the value as a whole is not JSON, and the copy (deflated,
base64) contains no words. The copy is what is read. The readable part must agree with it, apart from what is masked there, so
that a value that was edited by hand or cut short is detected. A long readable part is cut, and ends with `...`.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

from tidegate.core.model.errors import StateCorrupt, StateMasked

VERSION = 2
HEAD = re.compile(r"tidegate (\d+) ")
SHOWN = 4_000
"""Characters of the readable part."""
MASK = "***"
"""What Airflow shows in place of what it masks."""


def encode(kind: str, body: Mapping[str, Any]) -> str:
    """One line of text that `decode` reads back."""
    written = f"tidegate {VERSION} {_dumps({'kind': kind, 'body': body})}"
    return f"{_shown(written)} {base64.b64encode(zlib.compress(written.encode())).decode()}"


def decode(kind: str, text: str, *, key: str, repair: str) -> dict[str, Any]:
    """The body of a value that `encode` wrote. `key` and `repair`, one sentence, are for the error.

    Raises StateMasked: Airflow's API masks a part of it that is needed. StateCorrupt: not a saved value, another kind, another
    version, or changed; the message names the exact fault.
    """
    try:
        return _body(kind, text)
    except _Fault as fault:
        if MASK in text and _unpacked(text) is None:
            raise StateMasked(
                f"{key}: Airflow's API shows {MASK} in place of a part of the value that this command needs",
                fix="Nothing is lost: tasks read the complete value. The pipeline's next commit, or `tidegate ledger rebuild`, "
                "writes it in a form that the API shows. If it stays masked, its key contains a word of "
                "[core] sensitive_var_conn_names: remove the word there, or rename the pipeline",
                key=key,
            ) from fault
        raise StateCorrupt(f"{key}: {fault}", fix=repair, key=key) from fault


class _Fault(Exception):
    """What is wrong with a value, in words."""


def _body(kind: str, text: str) -> dict[str, Any]:
    _check_version(text)
    written = _unpacked(text)
    if written is None:
        raise _Fault("not a saved value, or its packed copy was changed or cut short after it was written")
    if not _agrees(text.rpartition(" ")[0], _shown(written)):
        raise _Fault("the readable part differs from the packed copy: the value was changed after it was written")
    value = _whole(written)
    if value["kind"] != kind:
        raise _Fault(f"holds a {value['kind']!r}, expected a {kind!r}")
    body: dict[str, Any] = value["body"]
    return body


def _whole(written: str) -> dict[str, Any]:
    _check_version(written)
    try:
        value = json.loads(HEAD.sub("", written, count=1))
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict) or not isinstance(value.get("body"), dict) or "kind" not in value:
        raise _Fault("the packed copy at its end holds no kind and body")
    return value


def _unpacked(text: str) -> str | None:
    """The text that the last word is a packed copy of; None where it is not a copy of a saved value."""
    try:
        written = zlib.decompress(base64.b64decode(text.rpartition(" ")[2], validate=True)).decode()
    except (ValueError, zlib.error):
        return None
    return written if HEAD.match(written) else None


def _shown(written: str) -> str:
    return written if len(written) <= SHOWN else f"{written[:SHOWN]}..."


def _agrees(shown: str, whole: str) -> bool:
    """Whether `shown` is `whole`, apart from what Airflow has masked."""
    first, *rest = shown.split(MASK)
    if not rest:
        return shown == whole
    at, end = len(first), len(whole) - len(rest[-1])
    if at > end or not whole.startswith(first) or not whole.endswith(rest[-1]):
        return False
    for part in rest[:-1]:
        start = whole.find(part, at, end)
        if start < 0:
            return False
        at = start + len(part)
    return True


def _check_version(text: str) -> None:
    head = HEAD.match(text)
    if head is not None and int(head[1]) != VERSION:
        age = "newer" if int(head[1]) > VERSION else "older"
        raise _Fault(f"format version {head[1]} is {age} than this library's {VERSION}")


def _dumps(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
