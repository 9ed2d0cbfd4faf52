"""Seconds in which a replay is cut into chunks, where every second batch is selected, for ever more batches.

    python -m tests.bench.chunks [--batches 2500] [--partitions 8]

It measures a quarter of the batches, half of them, and all: near-linear is twice as long each time.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.bench.cli import run
from tidegate.core.model.ranges import OffsetRange, merged
from tidegate.core.state.saved_replay import cut_chunks, smallest_size

EACH = 100


def measure(batches: int, partitions: int, _: Path) -> dict[str, Any]:
    """Seconds for the chunks, and for the smallest size that makes as many chunks as there are gaps, by batches."""
    measured: dict[str, Any] = {}
    for count in (batches // 4, batches // 2, batches):
        held = [tuple(OffsetRange("t", p, n * EACH, (n + 1) * EACH) for p in range(partitions)) for n in range(count)]
        selection = merged(r for batch in held[::2] for r in batch)
        began = time.perf_counter()
        chunks = cut_chunks(selection, held, partitions * EACH)
        cut = time.perf_counter()
        smallest_size(selection, held, len(chunks))
        measured[str(count)] = {
            "chunks": len(chunks),
            "cut_s": round(cut - began, 2),
            "smallest_size_s": round(time.perf_counter() - cut, 2),
        }
    return measured


if __name__ == "__main__":
    run(__doc__, measure, batches=2500, partitions=8)
