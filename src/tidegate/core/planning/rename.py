"""A pipeline gets another name: its ledger and its part of the table move, and it goes on where it was.

    copied   the saved state is there under the new name too, the cursor last
    moved    the table says that the new name owns it, and that what the old one has loaded is the new one's: one commit
    dropped  nothing is saved under the old name any more

The table's commit is what decides: before it the table refuses the new name, after it the old one. A rename that ended in
between is done again. Pure: on ports; the table's commit is a callable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import RequestError, StateCorrupt
from tidegate.core.state.codec import decode, encode
from tidegate.core.state.ledger import cursor_key
from tidegate.core.state.ports import SinkReader, StateStore

KINDS = ("range", "accepted", "replay", "cursor")
"""What is saved of a pipeline, in the order in which it is copied."""


def rename(
    old: str, pipeline: Pipeline, *, store: StateStore, sink: SinkReader, move_owner: Callable[[str, str, str], None]
) -> int:
    """Let a pipeline go on with what another name has saved and loaded; returns how many saved values were under the old name.

    No run of either may be active: a task that plans meanwhile may save what is not moved any more. `move_owner` makes the new
    name (its third argument) an owner of the table (its first) in the place of the old one. Raises RequestError: there is
    nothing to move, or something is there under the new name already; nothing was changed. StateError, SinkError: a step
    failed; the rename may be done again.
    """
    new, table = pipeline.name, pipeline.sink.table
    left = saved_keys(old, store)
    history = sink.history(table)
    owned = old in (history.owners or history.loaders)
    if history.renamed.get(new, old) != old:
        raise RequestError(
            f"{new} was the name of {history.renamed[new]} when it loaded into {table}, and those rows belong to that pipeline",
            fix="Give the pipeline another name",
        )
    if history.renamed.get(old) != new:
        moved = not left and cursor_key(new) in store.keys(cursor_key(new))  # the table is of a time before
        if not (moved and owned):
            if not left:
                raise RequestError(
                    f"there is no pipeline {old} to rename: it has no saved state",
                    fix="Name the pipeline as its Variables do, whose keys begin with tidegate.<pipeline>.",
                )
            if history.exists and not owned:
                raise RequestError(f"table {table} is not one of {old}", fix="Keep the former `sink.table` in the renamed file")
            _copy(old, new, left, store)
        move_owner(table, old, new)
    else:  # what is not there under the new name is another pipeline's, which has this name now
        left = [key for key in left if _body(_key(old, new, key), new, store) == _renamed(old, new, key, store)]
    for key in left:
        store.delete(key)
    return len(left)


def saved_keys(pipeline: str, store: StateStore) -> list[str]:
    """The keys of what is saved of a pipeline, the cursor last. Raises StateUnavailable."""
    keys = [key for key in store.keys(f"tidegate.{pipeline}.") if _kind(key, pipeline) in KINDS]
    return sorted(keys, key=lambda key: KINDS.index(_kind(key, pipeline)))


def _key(old: str, new: str, key: str) -> str:
    return f"tidegate.{new}.{key.removeprefix(f'tidegate.{old}.')}"


def _kind(key: str, pipeline: str) -> str:
    return key.removeprefix(f"tidegate.{pipeline}.").partition(".")[0]


def _copy(old: str, new: str, keys: list[str], store: StateStore) -> None:
    copies = {_key(old, new, key): _renamed(old, new, key, store) for key in keys}
    last = _key(old, new, keys[-1])
    if _body(last, new, store) == copies[last]:  # which is copied last, and dropped last: what is there was copied before
        return
    there = [key for key in store.keys(f"tidegate.{new}.") if _kind(key, new) in KINDS]
    if any(key not in copies or _body(key, new, store) != copies[key] for key in there):
        raise RequestError(
            f"{new} has saved state of its own ({there[0]}), which would be lost",
            fix=f"Choose another name; or, if this is left from an earlier rename, delete the Variables tidegate.{new}.*",
        )
    for key, body in copies.items():
        if key not in there:
            store.put(key, encode(_kind(key, new), body), f"Tidegate: {new}, which was {old}")


def _body(key: str, pipeline: str, store: StateStore) -> dict[str, Any] | None:
    """What is saved at a key; None where nothing is, or it cannot be read."""
    if key not in store.keys(key):
        return None
    try:
        return decode(_kind(key, pipeline), store.get(key), key=key, repair="")
    except StateCorrupt:
        return None


def _renamed(old: str, new: str, key: str, store: StateStore) -> dict[str, Any]:
    """The saved value under the new name."""
    repair = f"Repair {old} first: name its file back"
    body: Mapping[str, Any] = decode(_kind(key, old), store.get(key), key=key, repair=repair)
    named = {name: new for name, value in body.items() if name == "pipeline" and value == old}
    return {**body, **named}
