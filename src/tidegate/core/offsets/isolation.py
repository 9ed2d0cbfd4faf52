"""Which records of transactions a consumer reads: Kafka's isolation levels.

`read_committed` leaves out the records of aborted transactions, and ends before the first transaction that is open (at the last
stable offset). `read_uncommitted` reads to the high watermark.
"""

from __future__ import annotations

from typing import Literal, get_args

IsolationLevel = Literal["read_committed", "read_uncommitted"]
ISOLATION_LEVELS: tuple[IsolationLevel, ...] = get_args(IsolationLevel)
