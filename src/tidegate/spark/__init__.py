"""Spark: read explicit ranges, run the transform, let the sink replace exactly those rows; what failures mean."""
