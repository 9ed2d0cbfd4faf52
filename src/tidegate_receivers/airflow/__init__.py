"""The DAG of each receiver file, `<name>__receive`: wait for workers, place the instances, run one mapped task for each.

Operators are thin, as those of pipelines: where an instance runs is decided in `tidegate_receivers.rules.placement`, and what
it does is `tidegate_receivers.runtime`'s, which is imported in the task alone.
"""
