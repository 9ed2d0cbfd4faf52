"""Offset ranges: their algebra, and how they are cut for Spark's tasks."""
