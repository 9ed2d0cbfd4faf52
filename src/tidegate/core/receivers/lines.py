"""Lines of a stream of bytes that comes in chunks."""

from __future__ import annotations

from tidegate.core.counts import check_count


class LineSplitter:
    r"""Splits chunks at `\n`; a `\r` before it is taken off. Bytes are not decoded, and an empty line is a line.

    A chunk is split as a whole, not searched line by line. A line that is too long is skipped up to its end and counted, and no
    more than `max_bytes` and one chunk of it is ever held.

    Args:
        max_bytes: the longest line, without its end.

    Raises:
        RequestError: it is not above 0.
    """

    def __init__(self, max_bytes: int) -> None:
        check_count("max_bytes", max_bytes, least=1)
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._skipping = False
        self.refused = 0
        """Lines that were too long."""

    @property
    def open_bytes(self) -> int:
        """Bytes of the line that has not ended yet, as far as they are held; at least 1 where there are any."""
        return max(len(self._rest), int(self._skipping))

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
            self.refused += len(lines) - len(fitting)
            lines = fitting
        line = bytes(self._rest).removesuffix(b"\r")
        if self._skipping or len(line) > self._max_bytes:
            self.refused += 1
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
