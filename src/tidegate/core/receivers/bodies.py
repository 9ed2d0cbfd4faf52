"""The records in the body of an HTTP request."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from tidegate.core.errors import RecordRefused, RequestError

VALUE, LINES = "application/json", "application/x-ndjson"
CONTENT_TYPES = {VALUE: VALUE, LINES: LINES, "application/ndjson": LINES, "application/jsonl": LINES}
"""What a body may be: one JSON value, an array of them, or a value a line."""

_BLANKS = " \t\r\n"
_GAP = re.compile(f"[{_BLANKS}]*")
_COMMA = re.compile(f"[{_BLANKS}]*,[{_BLANKS}]*")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


@dataclass(frozen=True, slots=True)
class _Number:
    """A number as it was sent."""

    text: str


LONGEST_KEY = 4096
"""Characters of a record's own key, which becomes a header."""
_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=str, parse_float=str)  # the values are checked, not used
_KEYS = json.JSONDecoder(parse_constant=_no_constant, parse_int=_Number, parse_float=_Number)


def records_of(body: bytes, content_type: str, most: int) -> list[bytes]:
    """The records of a body, each exactly the bytes that were sent, without blanks around it.

    `application/json`: an array is a record for each of its elements, any other value is one record. `application/x-ndjson`:
    each line that is not blank is one record, also where it is an array.

    Args:
        body: as it was sent.
        content_type: a key of `CONTENT_TYPES`.
        most: how many records there may be, so that a body of small ones does not become a thousand times its size.

    Raises:
        RecordRefused: there are more records, or lines.
        RequestError: the body is not JSON in UTF-8; the message says where.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _invalid(f"byte {error.start} is not UTF-8") from None
    if CONTENT_TYPES[content_type] == LINES:
        if text.count("\n") > most:
            raise _too_many(most)
        return [_value(line, f"line {number}") for number, line in enumerate(text.split("\n"), 1) if line.strip(_BLANKS)]
    if text.lstrip(_BLANKS)[:1] == "[":
        return _elements(text, most)
    return [_value(text, "the body")]


def field_key(record: bytes, field: str) -> str | None:
    """The JSON text of a record's own key: a text that is not empty, or a number, in one of its fields; None where it has none.

    A text is written in one way, however it was escaped; a number stays as it was sent. Of several fields of that name the last
    one counts.

    Args:
        record: as `records_of` gives it.
        field: of the JSON object; other values have no fields.

    Raises:
        RequestError: the key is longer than `LONGEST_KEY`.
    """
    value, _ = _decode(record.decode(), 0, "a record", _KEYS)
    key = value.get(field) if isinstance(value, dict) else None
    if isinstance(key, _Number):
        text = key.text
    elif isinstance(key, str) and key:  # an empty one would make all records without a name repeats of one
        text = json.dumps(key)
    else:
        return None
    if len(text) > LONGEST_KEY:
        raise RequestError(f"{field} has {len(text)} characters", fix=f"Send keys of at most {LONGEST_KEY} characters")
    return text


def _value(text: str, where: str) -> bytes:
    text = text.strip(_BLANKS)
    _, end = _decode(text, 0, where)
    if end != len(text):
        raise _invalid(f"{where} goes on after a JSON value")
    return text.encode()


def _elements(text: str, most: int) -> list[bytes]:
    """The elements of an array, whose text starts with `[` after blanks."""
    records: list[bytes] = []
    at = _skip(text, text.index("[") + 1)
    closed = text.startswith("]", at)
    while not closed:
        if len(records) == most:
            raise _too_many(most)
        _, end = _decode(text, at, f"element {len(records) + 1}")
        records.append(text[at:end].encode())
        comma = _COMMA.match(text, end)
        if comma is not None:
            at = comma.end()
            continue
        at = _skip(text, end)
        closed = text.startswith("]", at)
        if not closed:
            raise _invalid(f"element {len(records)} is not followed by a comma or the array's end")
    if _skip(text, at + 1) != len(text):
        raise _invalid("the body goes on after its array")
    return records


def _skip(text: str, at: int) -> int:
    return _GAP.match(text, at).end()  # type: ignore[union-attr] # it matches everywhere


def _decode(text: str, at: int, where: str, decoder: json.JSONDecoder = _DECODER) -> tuple[Any, int]:
    try:
        return decoder.raw_decode(text, at)
    except RecursionError:
        raise _invalid(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise _invalid(f"{where}: {error}") from None


def _too_many(most: int) -> RecordRefused:
    return RecordRefused(f"a body has at most {most} records", fix="Send several requests")


def _invalid(why: str) -> RequestError:
    return RequestError(f"the body is not JSON: {why}", fix="Send JSON in UTF-8")
