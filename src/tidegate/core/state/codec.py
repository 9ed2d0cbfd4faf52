"""How saved state is written: text that people can read, and a packed copy of it that is read back.

    tidegate 2 {"body":{...},"kind":"cursor"} eNqrVkrKT6lUs...

Airflow's REST API decodes every Variable that is JSON, and masks the values of keys such as `password-resets`; in any text it
masks each password that it knows, which may be a common word. So the value as a whole is not JSON, and the copy (deflated,
base64) contains no words. The copy is what is read. The readable part must agree with it, apart from what is masked there, so
that a value that was edited by hand or cut short is detected. A long readable part is cut, and ends with `...`.

The number is the format of all that is saved: of these values, and of receipts in tables, which have it too. Whoever changes
what is written raises it, and keeps reading the formats of before (docs/adr/0038-formats.md). The first two words stay.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

from tidegate.core.model.errors import StateCorrupt, StateMasked, StateNewer

FORMAT = 2
"""What this version writes, and the newest that it reads."""
OLDEST = 2
"""The oldest format that it reads."""
HEAD = re.compile(r"tidegate (\d+) ")
SHOWN = 4_000
"""Characters of the readable part."""
MASK = "***"
"""What Airflow shows in place of what it masks."""


def encode(kind: str, body: Mapping[str, Any]) -> str:
    """One line of text that `decode` reads back."""
    written = f"tidegate {FORMAT} {_dumps({'kind': kind, 'body': body})}"
    return f"{_shown(written)} {base64.b64encode(zlib.compress(written.encode())).decode()}"


def decode(kind: str, text: str, *, key: str, repair: str) -> dict[str, Any]:
    """The body of a value that `encode` wrote. `key` and `repair`, one sentence, are for the error.

    Raises StateNewer: a newer version of Tidegate has written it. StateMasked: Airflow's API masks a part of it that is needed.
    StateCorrupt: not a saved value, another kind, an older format, or changed; the message names the exact fault.
    """
    try:
        return _body(kind, text, key)
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


def refuse_newer(number: int, what: str) -> None:
    """Refuse what is of a later format: this version cannot know what it means. Raises StateNewer."""
    if number > FORMAT:
        raise newer(f"{what} has format {number}, and the Tidegate that runs here knows formats up to {FORMAT}")


def newer(fault: str) -> StateNewer:
    """The error of what a newer version of Tidegate has written."""
    return StateNewer(
        f"{fault}: a newer version of Tidegate has written it",
        fix="Nothing was changed. Install the newer version wherever Airflow's servers, tasks and Spark's drivers run, then "
        "clear what failed",
    )


class _Fault(Exception):
    """What is wrong with a value, in words."""


def _body(kind: str, text: str, key: str) -> dict[str, Any]:
    _check_format(text, key)
    written = _unpacked(text)
    if written is None:
        raise _Fault("not a saved value, or its packed copy was changed or cut short after it was written")
    if not _agrees(text.rpartition(" ")[0], _shown(written)):
        raise _Fault("the readable part differs from the packed copy: the value was changed after it was written")
    value = _whole(written, key)
    if value["kind"] != kind:
        raise _Fault(f"holds a {value['kind']!r}, expected a {kind!r}")
    body: dict[str, Any] = value["body"]
    return body


def _whole(written: str, key: str) -> dict[str, Any]:
    _check_format(written, key)
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


def _check_format(text: str, key: str) -> None:
    head = HEAD.match(text)
    number = FORMAT if head is None else int(head[1])
    refuse_newer(number, key)
    if number < OLDEST:
        raise _Fault(f"format {number} is older than {OLDEST}, the oldest that is read")


def _dumps(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
