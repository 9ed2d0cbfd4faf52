"""What a receiver hands over to Kafka, and how lines and the bodies of HTTP requests become that."""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

from tidegate.core.config.names import IDEMPOTENCY_KEY
from tidegate.core.model.errors import RecordRefused, RequestError, TidegateError

Headers: TypeAlias = list[tuple[str, str | bytes | None]]
"""As the Kafka client takes them; here all are bytes."""


class Outgoing(NamedTuple):
    """One record.

    Args:
        value: as it was received.
        key: chooses the partition, as in Kafka's Java client; None: the stream does.
        stream: records of one stream keep their order, so they go to one partition.
        headers: may be shared with other records.
    """

    value: bytes
    key: bytes | None
    stream: int
    headers: Headers


def headers_of(receiver: str, instance: int, host: str, received_at_ms: int, block: str) -> Headers:
    """The headers that every record has; all are texts.

    Args:
        receiver: its name.
        instance: which instance of it, from 0.
        host: the host that it ran on.
        received_at_ms: when the record was received, epoch ms.
        block: the id of the block that it was part of; it stays when the block is sent again.
    """
    texts = {
        "receiver": receiver,
        "instance": str(instance),
        "host": host,
        "received_at": str(received_at_ms),
        "block": block,
    }
    return [(f"tidegate.{name}", text.encode()) for name, text in texts.items()]


def idempotency_headers(
    stream: int, request_key: str | None, record_keys: Sequence[str | None]
) -> Iterator[tuple[int, tuple[str, bytes] | None]]:
    """The stream of each record of a request, and the header by which a repeat of it is known, if it has one.

    What is sent again may come over another connection, to another instance, or after a restart. So a record with a key has a
    stream that follows from the key alone. Otherwise its repeat would land in another partition, where no pipeline finds it.

    Args:
        stream: of records without a key.
        request_key: what the sender named the request; bytes that are not UTF-8 stand in it as surrogates, and are landed as
            they were. Each record gets it with its number in the request, from 0, and all go to one partition.
        record_keys: where the request has no name, that of each record.
    """
    if request_key is not None:
        shared = _stream_of(request_key)
        yield from ((shared, _header(f"{request_key}/{number}")) for number in itertools.count())
    for key in record_keys:
        yield (stream, None) if key is None else (_stream_of(key), _header(key))


def _header(key: str) -> tuple[str, bytes]:
    return IDEMPOTENCY_KEY, key.encode(errors="surrogateescape")


def _stream_of(key: str) -> int:
    return zlib.crc32(key.encode(errors="surrogateescape"))


# ---- lines


class LineSplitter:
    r"""Splits chunks at `\n`; a `\r` before it is taken off. Bytes are not decoded, and an empty line is a line.

    A chunk is split as a whole, not searched line by line. A line that is too long is skipped up to its end and counted, and no
    more than `max_bytes` and one chunk of it is ever held.

    Args:
        max_bytes: the longest line, without its end.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._skipping = False
        self._refused = 0

    @property
    def open_bytes(self) -> int:
        """Bytes of the line that has not ended yet, as far as they are held; at least 1 where there are any."""
        return max(len(self._rest), int(self._skipping))

    def refused(self) -> int:
        """How many lines were too long since this was asked last."""
        count, self._refused = self._refused, 0
        return count

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in this chunk."""
        first, end, after = chunk.partition(b"\n")
        self._extend(first)
        if not end:
            return []
        lines = after.split(b"\n")
        last = lines.pop()
        if b"\r" in after:
            lines = [line.removesuffix(b"\r") for line in lines]
        if len(after) > self._max_bytes:  # else no line in it is too long
            fitting = [line for line in lines if len(line) <= self._max_bytes]
            self._refused += len(lines) - len(fitting)
            lines = fitting
        line = bytes(self._rest).removesuffix(b"\r")
        if self._skipping or len(line) > self._max_bytes:
            self._refused += 1
        else:
            lines.insert(0, line)
        self._rest.clear()
        self._skipping = False
        self._extend(last)
        return lines

    def _extend(self, part: bytes) -> None:
        """More of a line that has not ended yet."""
        if not self._skipping:
            self._rest += part
            if len(self._rest) > self._max_bytes + 1:  # the one may be the \r before its end
                self._rest.clear()
                self._skipping = True


# ---- bodies of requests

VALUE, LINES = "application/json", "application/x-ndjson"
CONTENT_TYPES = {VALUE: VALUE, LINES: LINES, "application/ndjson": LINES, "application/jsonl": LINES}
"""What a body may be: one JSON value, an array of them, or a value a line."""

_BLANKS = " \t\r\n"
_GAP = re.compile(f"[{_BLANKS}]*")
_COMMA = re.compile(f"[{_BLANKS}]*,[{_BLANKS}]*")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _Number(str):
    """A number as it was sent."""

    __slots__ = ()


LONGEST_KEY = 4096
"""Characters of a record's own key, which becomes a header."""
_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=_Number, parse_float=_Number)


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
    value, _ = _decode(record.decode(), 0, "a record")
    key = value.get(field) if isinstance(value, dict) else None
    if not isinstance(key, str) or not key:  # an empty one would make all records without a name repeats of one
        return None
    text = str(key) if isinstance(key, _Number) else json.dumps(key)
    if len(text) > LONGEST_KEY:
        raise RequestError(f"{field} has {len(text)} characters", fix=f"Send keys of at most {LONGEST_KEY} characters")
    return text


def _value(text: str, where: str) -> bytes:
    text = text.strip(_BLANKS)
    _, end = _decode(text, 0, where)
    if end != len(text):
        raise _invalid(f"{where} has extra text after the JSON value")
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
        raise _invalid("the body has extra text after its array")
    return records


def _skip(text: str, at: int) -> int:
    return _GAP.match(text, at).end()  # type: ignore[union-attr] # it matches everywhere


def _decode(text: str, at: int, where: str) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise _invalid(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise _invalid(f"{where}: {error}") from None


def _too_many(most: int) -> RecordRefused:
    return RecordRefused(f"a body has at most {most} records", fix="Send several requests")


def _invalid(why: str) -> RequestError:
    return RequestError(f"the body is not JSON: {why}", fix="Send JSON in UTF-8")


Failures: TypeAlias = dict[int, TidegateError]
"""By their place in a block, the records without an acknowledgement. `RecordRefused` is final; others may be sent again."""


class Sender(Protocol):
    """What delivers the blocks of a receiver to its topic, one at a time."""

    async def send(self, records: Sequence[Outgoing]) -> Failures:
        """Send a block. Returns when the end of every record is known, however long a broker is away; raises nothing.

        Records of one key, and those of one stream without a key, are in the log in their order.
        """

    def give_up(self) -> None:
        """Let the `send` that is under way, and each later one, end now: what is not acknowledged by then has failed."""

    @property
    def trouble(self) -> TidegateError | None:
        """What keeps records waiting, as far as it is known: no broker answers, the login fails."""

    async def close(self) -> None:
        """End what is open. No `send` may be under way."""
