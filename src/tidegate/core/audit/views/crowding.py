"""Whether receivers, which keep their slots for hours, leave any to the tasks of pipelines, which need one for seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from tidegate.core.config.pipeline import pool_command
from tidegate.core.config.receiver import DEFAULT_POOL, Receiver

RECEIVERS = "Instances of Tidegate receivers"
SHORT_TASKS = 6
"""Tasks of pipelines that a piece of advice leaves room for."""


def receiver_slots(receivers: Iterable[Receiver]) -> dict[str, int]:
    """The slots of each pool that receivers take, by the pool."""
    taken = Counter[str]()
    for receiver in receivers:
        taken[receiver.workers.pool] += receiver.slots
    return dict(sorted(taken.items()))


def crowding(
    slots: Mapping[str, int], *, held: Callable[[str], int | None], parallelism: Callable[[], int | None]
) -> list[str]:
    """A sentence on each limit of Airflow that receivers reach; none where all fit, and pipelines beside them.

    Args:
        slots: what receivers take of each pool, by the pool.
        held: the slots that a pool has, -1 where it has no limit; None: there is no such pool.
        parallelism: the tasks that Airflow runs at the same time; None where that is not known. Asked only where there are any.
    """
    said = list[str]()
    for pool, taken in slots.items():
        has = held(pool)
        if pool == DEFAULT_POOL:
            if has is not None and 0 <= has <= taken:
                said.append(
                    f"receivers take {taken} of the {has} slots of {pool}, which plans and commits need, too: pipelines stand "
                    f"still. Give receivers a pool of their own (`workers.pool`), or raise it to {taken + SHORT_TASKS}"
                )
        elif has is None or 0 <= has < taken:
            what = "does not exist" if has is None else f"has {has}"
            said.append(
                f"receivers need {taken} slots of the pool {pool}, which {what}: instances wait. "
                f"Run `{pool_command(pool, taken, RECEIVERS)}`"
            )
    total, most = sum(slots.values()), parallelism() if slots else None
    if most is not None and 0 < most <= total:
        said.append(
            f"receivers take {total} of the {most} tasks that Airflow runs at the same time: loads stay queued. "
            f"Raise [core] parallelism to {total + SHORT_TASKS}; on the embedded platform, `tidegate down` and `up` do"
        )
    return said
