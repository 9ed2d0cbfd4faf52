"""Laws of the buffer in which records gather, and of lines and bodies that become records."""

from __future__ import annotations

import json
import math
import zlib
from itertools import accumulate, islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.config.names import IDEMPOTENCY_KEY
from tidegate.core.model.errors import RecordRefused, RequestError
from tidegate_receivers.rules import records
from tidegate_receivers.rules.limits import BlockBuffer, RecordBlock
from tidegate_receivers.rules.records import LineSplitter, field_key, records_of

JSON, NDJSON = "application/json", "application/x-ndjson"
MANY = 1000


def test_a_block_is_due_an_interval_after_its_first_item() -> None:
    buffer: BlockBuffer[str] = BlockBuffer(0.2, 1000, 10_000)
    assert buffer.due_s == math.inf
    buffer.add("a", records=2, size=10, now_s=5.0)
    buffer.add("b", records=3, size=20, now_s=5.1)
    assert (buffer.due_s, buffer.cut(5.1999)) == (5.2, None)
    block = buffer.cut(5.2)
    assert block is not None
    assert (block.items, block.records, block.size) == (("a", "b"), 5, 30)
    assert (buffer.cut(), buffer.due_s) == (None, math.inf)
    buffer.add("c", records=1, size=1, now_s=6.0)
    assert buffer.cut() is not None


def test_a_block_is_due_at_once_when_it_is_large_enough_or_somebody_waits_for_it() -> None:
    buffer: BlockBuffer[str] = BlockBuffer(60, 100, 10_000)
    buffer.add("a", records=1, size=99, now_s=0.0)
    assert buffer.cut(1.0) is None
    buffer.add("b", records=1, size=1, now_s=1.0)
    assert (buffer.due_s, buffer.cut(1.0) is None) == (-math.inf, False)
    buffer.add("c", records=1, size=1, now_s=2.0, prompt=True)
    assert buffer.cut(2.0) is not None


def test_a_block_keeps_its_bytes_until_it_is_released() -> None:
    """What is on its way to Kafka counts as much as what waits."""
    buffer: BlockBuffer[str] = BlockBuffer(1, 10, 100)
    buffer.add("a", records=1, size=60, now_s=0.0)
    block = buffer.cut(0.0)
    assert block is not None
    buffer.add("b", records=1, size=40, now_s=0.0)
    assert (buffer.used, buffer.has_room(1), buffer.has_room(0)) == (100, False, True)
    buffer.release(block)
    assert (buffer.used, buffer.has_room(60)) == (40, True)


@given(st.lists(st.tuples(st.integers(0, 60), st.floats(0, 1), st.booleans(), st.booleans()), max_size=60))
def test_every_item_leaves_once_in_order_and_the_buffer_never_overflows(
    steps: list[tuple[int, float, bool, bool]],
) -> None:
    buffer: BlockBuffer[int] = BlockBuffer(0.5, 40, 100)
    now_s, added = 0.0, list[int]()
    left: list[int] = []
    on_their_way: list[RecordBlock[int]] = []
    for number, (size, pause_s, prompt, release) in enumerate(steps):
        now_s += pause_s
        if buffer.has_room(size):
            buffer.add(number, records=1, size=size, now_s=now_s, prompt=prompt)
            added.append(number)
        if block := buffer.cut(now_s):
            left += block.items
            on_their_way.append(block)
        assert not buffer.due_s <= now_s
        if release and on_their_way:
            buffer.release(on_their_way.pop(0))
        assert 0 <= sum(block.size for block in on_their_way) <= buffer.used <= buffer.capacity
    if block := buffer.cut():
        left += block.items
        on_their_way.append(block)
    assert left == added
    for block in on_their_way:
        buffer.release(block)
    assert buffer.used == 0


def test_a_line_that_is_too_long_is_counted_and_skipped_up_to_its_end() -> None:
    """No more of it is held than the limit and a chunk; the lines beside it are there."""
    splitter = LineSplitter(4)
    assert splitter.feed(b"1234\r\n12345\n1\n") == [b"1234", b"1"]
    assert splitter.feed(b"12345") == []
    assert splitter.open_bytes == 5
    for _ in range(1000):
        assert splitter.feed(b"1234567") == []
        assert splitter.open_bytes == 1
    assert splitter.feed(b"8\nab") == []
    assert splitter.feed(b"cd\r") == []
    assert splitter.feed(b"\nabcd\r\r\n") == [b"abcd"]
    assert [splitter.refused(), splitter.refused()] == [3, 0]


PIECES = st.sampled_from([b"a", b"bcd", b"\n", b"\r", b"\r\n", b"\xff"])


@given(st.lists(PIECES, max_size=40).map(b"".join), st.lists(st.integers(0, 20), max_size=20), st.integers(1, 12))
def test_how_a_stream_is_cut_into_chunks_changes_no_line(stream: bytes, sizes: list[int], longest: int) -> None:
    splitter, lines = LineSplitter(longest), list[bytes]()
    cuts = [0, *(at for at in accumulate(sizes) if at < len(stream)), len(stream)]
    for start, end in pairwise(cuts):
        lines += splitter.feed(stream[start:end])
    *ended, rest = stream.split(b"\n")
    expected = [line.removesuffix(b"\r") for line in ended]
    assert lines == [line for line in expected if len(line) <= longest]
    assert splitter.refused() == sum(len(line) > longest for line in expected)
    assert (splitter.open_bytes > 0) == (rest != b"")


@pytest.mark.parametrize(
    ("content_type", "body", "records"),
    [
        (JSON, b' {"a": 1.50} \n', [b'{"a": 1.50}']),
        (JSON, b'"a"', [b'"a"']),
        (JSON, b"null", [b"null"]),
        (JSON, b"[]", []),
        (JSON, b"\n[ ]\n", []),
        (JSON, b'[ {"a":  1} ,\r\n[2], "]",3]', [b'{"a":  1}', b"[2]", b'"]"', b"3"]),
        (JSON, '["ä", "\u2028"]'.encode(), ['"ä"'.encode(), '"\u2028"'.encode()]),
        (JSON, b"1" * 10_000, [b"1" * 10_000]),
        (NDJSON, b'{"a":1}\r\n\n  \n[1,2]\n', [b'{"a":1}', b"[1,2]"]),
        (NDJSON, b'{"a":1}', [b'{"a":1}']),
        (NDJSON, b"", []),
    ],
)
def test_a_body_becomes_records_of_exactly_its_bytes(content_type: str, body: bytes, records: list[bytes]) -> None:
    assert records_of(body, content_type, MANY) == records


@pytest.mark.parametrize(
    ("content_type", "body", "error", "why"),
    [
        (JSON, b"", RequestError, "the body: Expecting value"),
        (JSON, b"{} {}", RequestError, "the body has extra text after the JSON value"),
        (JSON, b"{'a': 1}", RequestError, "the body: Expecting property name"),
        (JSON, b"NaN", RequestError, "the body: NaN is not JSON"),
        (JSON, b"[-Infinity]", RequestError, "element 1: -Infinity is not JSON"),
        (JSON, b'["\xff"]', RequestError, "byte 2 is not UTF-8"),
        (JSON, b"[1 2]", RequestError, "element 1 is not followed by a comma"),
        (JSON, b"[1", RequestError, "element 1 is not followed by a comma or the array's end"),
        (JSON, b"[1,]", RequestError, "element 2: Expecting value"),
        (JSON, b"[", RequestError, "element 1: Expecting value"),
        (JSON, b"[1] 2", RequestError, "the body has extra text after its array"),
        (JSON, b"[" * 100_000, RequestError, "nested too deeply"),
        (NDJSON, b'{"a":1}\n{"a":', RequestError, "line 2: Expecting value"),
        (NDJSON, b'{"a":1} {"a":2}\n', RequestError, "line 1 has extra text after the JSON value"),
        (JSON, b"[1,2,3,", RecordRefused, "a body has at most 3 records"),
        (NDJSON, b"1\n2\n3\n\n", RecordRefused, "a body has at most 3 records"),  # blank lines count
    ],
)
def test_a_body_is_refused_with_its_place_and_where_it_has_too_many_records_before_the_rest_is_read(
    content_type: str, body: bytes, error: type[Exception], why: str
) -> None:
    """The sender sees which element or line. Each record takes many times its bytes."""
    with pytest.raises(error, match=why):
        records_of(body, content_type, 3)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=5), st.tuples(st.sampled_from([None, 2]), st.booleans()))
def test_an_array_and_its_elements_as_lines_are_the_same_records(values: list[object], form: tuple[int | None, bool]) -> None:
    indent, ascii_only = form
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    lines = "\n".join(json.dumps(value, ensure_ascii=ascii_only) for value in values).encode(errors="surrogatepass")
    assert [json.loads(record) for record in records_of(text, JSON, MANY)] == values
    assert [json.loads(record) for record in records_of(lines, NDJSON, MANY)] == values


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (b'{"id": 7}', "7"),
        (b'{"id": -1.50e3, "x": {"id": 2}}', "-1.50e3"),
        (b'{"id": 12345678901234567890123}', "12345678901234567890123"),
        (b'{"id": "7"}', '"7"'),
        ('{"id": "ä/0"}'.encode(), '"\\u00e4/0"'),
        (b'{"id": "\\u00e4/0"}', '"\\u00e4/0"'),
        (b'{"id": "\\ud800"}', '"\\ud800"'),
        (b'{"id": " "}', '" "'),
        (b'{"id": ""}', None),
        (b'{"id": 1, "id": 2}', "2"),
        *((b'{"id": %s}' % value, None) for value in (b"null", b"true", b"[1]", b'{"id": 1}')),
        *((record, None) for record in (b"{}", b'{"Id": 1}', b"7", b'"id"', b'["id"]')),
    ],
)
def test_the_key_of_a_record_is_the_json_text_of_its_field(record: bytes, key: str | None) -> None:
    """A text or a number: a text in one way of writing it, a number as it was sent. Whatever else it is, it is no key."""
    assert field_key(record, "id") == key


def test_a_key_that_no_header_takes_is_refused() -> None:
    assert field_key(b'{"id": "%s"}' % (b"x" * (records.LONGEST_KEY - 2)), "id")
    with pytest.raises(RequestError, match=f"id has {records.LONGEST_KEY + 1} characters"):
        field_key(b'{"id": "%s"}' % (b"x" * (records.LONGEST_KEY - 1)), "id")


def test_records_with_a_key_have_a_stream_that_follows_from_it_alone() -> None:
    """A request's name is one stream for all its records; the number is the same in every process."""
    shared = zlib.crc32(b"abc")
    named = list(islice(records.idempotency_headers(3, "abc", ()), 2))
    assert named == [(shared, (IDEMPOTENCY_KEY, b"abc/0")), (shared, (IDEMPOTENCY_KEY, b"abc/1"))]
    own = list(records.idempotency_headers(3, None, ["7", None]))
    assert own == [(zlib.crc32(b"7"), (IDEMPOTENCY_KEY, b"7")), (3, None)]
    sent = next(records.idempotency_headers(3, b"\xff".decode(errors="surrogateescape"), ()))
    assert sent == (zlib.crc32(b"\xff"), (IDEMPOTENCY_KEY, b"\xff/0"))
