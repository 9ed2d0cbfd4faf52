"""Iceberg: `history`, `origins` and `summary` read by PyIceberg, without Spark; the rest writes and maintains by Spark."""
