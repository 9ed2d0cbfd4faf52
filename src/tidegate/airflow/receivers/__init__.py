"""The DAG of each receiver file, `<name>__receive`: wait for workers, place the instances, run one mapped task for each.

Operators are thin, as those of pipelines: where an instance runs is decided in `tidegate.core.receivers.placement`, and what
it does is `tidegate.ingest`'s, which is imported in the task alone.
"""
