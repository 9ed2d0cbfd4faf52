"""The folder that the warm-up imports its transform from, as `spark_jobs` is of a project."""
