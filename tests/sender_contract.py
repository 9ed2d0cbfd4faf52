"""The laws of `Sender`: what has no failure is in the log, in order, as it was given."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from tidegate.core.model.errors import RecordRefused
from tidegate_receivers.rules.records import Failures, Outgoing, Sender, headers_of

HEADERS = headers_of("r", 0, "h", 1_760_000_000_000, "r-0-1")
Landed = Callable[[], Sequence[Outgoing]]


def run(work: Awaitable[Failures], sender: Sender) -> Failures:
    """In an event loop of its own; then the sender is closed."""

    async def inside() -> Failures:
        try:
            return await work
        finally:
            await sender.close()

    return asyncio.run(inside())


def numbers(records: Sequence[Outgoing], key: bytes | None, stream: int) -> list[bytes]:
    """The first word of each record of a key, or of a stream without a key."""
    wanted = [record for record in records if record.key == key and (key is not None or record.stream == stream)]
    return [record.value.partition(b" ")[0] for record in wanted]


class SenderContract:
    """Laws of `Sender`.

    Fixtures of the subclass:
        sender: the port under test; its topic is empty and has several partitions.
        longest: bytes of a value that the topic takes; one of four times as many it refuses.
        landed: returns the records of the topic, each partition in its order; streams may be lost on the way and are then -1.
        unreachable: one whose broker does not answer.
    """

    def test_what_has_no_failure_is_in_the_log_in_order_as_it_was_given(self, sender: Sender, landed: Landed) -> None:
        """Each key, and each stream without one; over several blocks."""
        keys = [b"a", b"b", b""]
        blocks = [
            [Outgoing(b"%d \xff\x00\n" % n, key, 0, HEADERS) for n in range(block * 50, block * 50 + 50) for key in keys]
            for block in range(3)
        ]

        async def send() -> Failures:
            return {at: error for block in blocks for at, error in (await sender.send(block)).items()}

        assert run(send(), sender) == {}
        found = landed()
        for key in keys:
            assert numbers(found, key, 0) == [b"%d" % n for n in range(150)]
        assert all(record.headers == HEADERS and record.value.endswith(b" \xff\x00\n") for record in found)

    def test_an_empty_block_ends(self, sender: Sender, landed: Landed) -> None:
        """With nothing."""
        assert run(sender.send([]), sender) == {}
        assert landed() == []

    def test_a_record_that_is_too_large_is_refused_and_no_other(self, sender: Sender, landed: Landed, longest: int) -> None:
        """For good; those around it are landed once, in their order."""
        draw = random.Random(7)  # noqa: S311 - bytes that cannot be compressed
        sizes = {3: 4 * longest, 11: 4 * longest}
        block = [Outgoing(b"%d " % n + draw.randbytes(sizes.get(n, longest // 10)), b"k", 0, []) for n in range(20)]
        failed = run(sender.send(block), sender)
        assert {at: type(error) for at, error in failed.items()} == dict.fromkeys(sizes, RecordRefused)
        assert numbers(landed(), b"k", 0) == [b"%d" % n for n in range(20) if n not in sizes]

    def test_what_is_given_up_has_failed_and_may_be_sent_again(self, unreachable: Sender) -> None:
        """The `send` that is under way ends, and so does each later one."""
        block = [Outgoing(b"1", None, 0, []), Outgoing(b"2", b"k", 0, [])]

        async def send() -> Failures:
            first = asyncio.ensure_future(unreachable.send(block))
            await asyncio.sleep(0.01)
            unreachable.give_up()
            failed = await first
            assert failed.keys() == (await unreachable.send(block)).keys()
            return failed

        failed = run(send(), unreachable)
        assert failed.keys() == {0, 1}
        assert not any(isinstance(error, RecordRefused) for error in failed.values())
