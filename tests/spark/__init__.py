"""Transforms, loads and the sink with a classic Spark session."""
