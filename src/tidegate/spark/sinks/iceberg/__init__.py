"""Iceberg tables as a sink: the only package of Spark's side that knows Iceberg."""
