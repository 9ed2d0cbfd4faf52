"""Which snapshots of a table may expire. Pure: values in, values out.

Iceberg's own rule (`expire_snapshots` with `retain_last`) counts the ancestors of a branch alone: snapshots that a rollback has
left behind, and those that wait to be published, would go however new they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

MOST = 10_000
"""Snapshots of one run; the next run goes on."""
MAIN = "main"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of a table: its id, that of its parent (None: it has none), and when it was committed (epoch ms)."""

    id: int
    parent: int | None
    committed_at_ms: int


def to_expire(
    snapshots: Iterable[Snapshot], branches: Mapping[str, int], tags: Collection[int], *, before_ms: int, keep: int
) -> list[int]:
    """The ids of those that may expire, the oldest first, at most `MOST`.

    None is from `before_ms` or later, none among the newest `keep` ancestors of the current state, none among the newest `keep`
    of all that are no ancestors, and none is held by a tag or by another branch. `branches` has the newest snapshot of each
    branch, `main` among them.
    """
    by_id = {snapshot.id: snapshot for snapshot in snapshots}
    lineage = _ancestors(by_id, branches.get(MAIN))
    held = {*tags, *branches.values()}
    for name, head in branches.items():
        if name != MAIN:
            held |= {snapshot.id for snapshot in _ancestors(by_id, head)} - {snapshot.id for snapshot in lineage}
    current = {snapshot.id for snapshot in lineage}
    others = sorted((s for s in by_id.values() if s.id not in current), key=lambda s: s.committed_at_ms, reverse=True)
    old = (s for s in (*lineage[keep:], *others[keep:]) if s.committed_at_ms < before_ms and s.id not in held)
    return [s.id for s in sorted(old, key=lambda s: s.committed_at_ms)][:MOST]


def _ancestors(by_id: Mapping[int, Snapshot], head: int | None) -> list[Snapshot]:
    """A snapshot and those that it descends from, the newest first."""
    found = []
    while head is not None and head in by_id:
        found.append(by_id[head])
        head = by_id[head].parent
    return found
