"""Tidegate: Kafka offset ranges as an orchestrated, replayable schedule."""

__version__ = "0.1.0"
