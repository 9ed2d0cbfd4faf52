"""Which adapter reads the tables of a kind of sink, without Spark."""

from __future__ import annotations

from tidegate.core.config.sinks import ICEBERG, SinkKind
from tidegate.core.state.ports import SinkReader
from tidegate.sinks.iceberg.history import IcebergReader

READERS = {ICEBERG: IcebergReader}


def reader_of(kind: SinkKind) -> SinkReader:
    """What reads tables of this kind."""
    return READERS[kind]()
