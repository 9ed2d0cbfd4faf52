"""Iceberg: `history`, `origins` and `rename` use PyIceberg and no Spark; `table` writes, `maintenance` maintains, by Spark."""
