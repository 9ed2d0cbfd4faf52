"""What receivers ask of Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from tidegate.core.model.errors import TidegateError
from tidegate_receivers.rules.records import Outgoing

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
