"""A sender sends only what its receiver has room for."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.counts import check_count
from tidegate.core.errors import RequestError


@dataclass(slots=True)
class _Channel:
    """Places that a channel may use, and the records on their way in places that it has used."""

    available: int
    required: int
    spent: int = 0

    @property
    def short(self) -> int:
        return max(0, self.required - self.available)


class CreditPool:
    """Places for records, shared by channels. A credit is a place that a channel may fill.

    From Flink's credit-based flow control. Each open channel has `exclusive` places of its own; the floating places go where
    records wait, and come back when they no longer do. Places are neither made nor lost: `free`, and what open channels have
    available and spent, are together `floating` and `exclusive` for each open channel.

    Args:
        exclusive: places of each open channel.
        floating: places for all channels together.

    Raises:
        RequestError: a number is negative or not whole.
    """

    def __init__(self, exclusive: int, floating: int) -> None:
        check_count("exclusive", exclusive)
        check_count("floating", floating)
        self._exclusive = exclusive
        self._free = floating
        self._channels: dict[str, _Channel] = {}
        self._turns: dict[str, None] = {}  # channels that wait; the first is the next to get a place. Then no place is free

    @property
    def free(self) -> int:
        """Floating places that no channel has."""
        return self._free

    def available(self, channel: str) -> int:
        """Records that the channel may send."""
        return self._channel(channel).available

    def required(self, channel: str) -> int:
        """Places that the channel asks for: its announced backlog and `exclusive`."""
        return self._channel(channel).required

    def waiting(self, channel: str) -> bool:
        """Whether the channel gets places that become free: from an `announce` that left it short until it is so no longer."""
        self._channel(channel)
        return channel in self._turns

    def open(self, channel: str) -> int:
        """Add a channel.

        Returns:
            Its credits to begin with, which are `exclusive`.

        Raises:
            RequestError: it is open.
        """
        if channel in self._channels:
            raise RequestError(f"channel {channel!r} is open", fix="Close it before it is opened again", channel=channel)
        self._channels[channel] = _Channel(available=self._exclusive, required=self._exclusive)
        return self._exclusive

    def announce(self, channel: str, backlog: int) -> int:
        """Take note of the records that wait at the sender, in place of what it announced before.

        Free places are granted at once. A smaller backlog takes nothing away.

        Returns:
            How many credits are granted now.

        Raises:
            RequestError: the channel is not open, or the backlog is negative or not whole; nothing is changed.
        """
        state = self._channel(channel)
        check_count("backlog", backlog)
        state.required = backlog + self._exclusive
        granted = min(self._free, state.short)
        self._free -= granted
        state.available += granted
        if state.short:
            self._turns.setdefault(channel)  # a channel that waits already keeps its turn
        else:
            self._turns.pop(channel, None)
        return granted

    def spend(self, channel: str, n: int = 1) -> None:
        """Take credits of a channel for records that are on their way.

        Raises:
            RequestError: more than is available, the channel is not open, or `n` is negative or not whole; nothing is changed.
        """
        state = self._channel(channel)
        check_count("n", n)
        if n > state.available:
            raise RequestError(
                f"channel {channel!r} spends {n} credits and has {state.available}", fix="Wait for credits", channel=channel
            )
        state.available -= n
        state.spent += n

    def give_back(self, channel: str, n: int = 1) -> dict[str, int]:
        """Take note that records of a channel have left their places.

        A place stays with its channel while that has less than it requires, which is never less than `exclusive`; otherwise it
        is free, and goes to the channels that wait, one place at a time, in turn.

        Returns:
            The credits granted now, for each channel that gets any, the giver included.

        Raises:
            RequestError: more than is spent, the channel is not open, or `n` is negative or not whole; nothing is changed.
        """
        state = self._channel(channel)
        check_count("n", n)
        if n > state.spent:
            raise RequestError(
                f"channel {channel!r} gives back {n} places and has spent {state.spent}",
                fix="Give back each place once",
                channel=channel,
            )
        kept = min(n, state.short)
        state.spent -= n
        state.available += kept
        if not state.short:
            self._turns.pop(channel, None)
        self._free += n - kept
        return ({channel: kept} if kept else {}) | self._grant()

    def close(self, channel: str) -> dict[str, int]:
        """Remove a channel; its floating places, also those in use, are free and go to the channels that wait.

        Returns:
            The credits granted now, for each channel that gets any.

        Raises:
            RequestError: the channel is not open.
        """
        state = self._channel(channel)
        del self._channels[channel]
        self._turns.pop(channel, None)
        self._free += state.available + state.spent - self._exclusive
        return self._grant()

    def _grant(self) -> dict[str, int]:
        """Give the free places to the channels that wait, as if one place at a time, in turn."""
        granted: dict[str, int] = {}
        while self._free and self._turns:
            # as many rounds at once as every waiting channel takes part in; fewer places than channels: one each for the first
            share = max(1, min(self._free // len(self._turns), *(self._channels[name].short for name in self._turns)))
            for name in list(self._turns)[: self._free]:
                state = self._channels[name]
                state.available += share
                self._free -= share
                granted[name] = granted.get(name, 0) + share
                del self._turns[name]
                if state.short:
                    self._turns[name] = None
        return granted

    def _channel(self, name: str) -> _Channel:
        if name not in self._channels:
            raise RequestError(f"channel {name!r} is not open", fix="Open it first", channel=name)
        return self._channels[name]
