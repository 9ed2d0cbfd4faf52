"""The life of a batch, as one table: its states, and what each event does in each of them. `docs/lifecycle.md` shows it.

A property test drives `tidegate.core.planning.run` through every event in every order and holds the result against it. A crash
is no event: a state is saved when it begins, so the next call continues.
"""

from __future__ import annotations

from enum import StrEnum

from tidegate.views.entries import BatchState
from tidegate_receivers.rules.lifecycle import Transition

MEANING = {
    BatchState.NEW: "nothing is saved of it",
    BatchState.PLANNED: "its range is saved as a Variable; nothing else has happened",
    BatchState.LOADED: "the table holds a commit with its receipt",
    BatchState.COMMITTED: "the cursor has moved past it",
}


class BatchEvent(StrEnum):
    """What a task, an operator or a zombie can do to a batch."""

    PLAN = "plan"
    LOAD = "load"
    COMMIT = "commit"
    REBUILD = "rebuild"


TRANSITIONS = (
    Transition(BatchState.NEW, BatchEvent.PLAN, BatchState.PLANNED, "the range is saved by one write, before any work"),
    Transition(
        BatchState.PLANNED, BatchEvent.PLAN, BatchState.PLANNED, "the same run finds its range; another run adopts a copy of it"
    ),
    Transition(
        BatchState.PLANNED,
        BatchEvent.LOAD,
        BatchState.LOADED,
        "one commit of the table replaces the rows and carries the receipt",
    ),
    Transition(BatchState.PLANNED, BatchEvent.COMMIT, BatchState.PLANNED, "refused: there is no receipt"),
    Transition(BatchState.PLANNED, BatchEvent.REBUILD, BatchState.NEW, "dropped: its offsets are planned again"),
    Transition(BatchState.LOADED, BatchEvent.PLAN, BatchState.LOADED, "as in planned"),
    Transition(BatchState.LOADED, BatchEvent.LOAD, BatchState.LOADED, "the receipt is found: nothing is written"),
    Transition(BatchState.LOADED, BatchEvent.COMMIT, BatchState.COMMITTED, "requirement and update: the cursor moves"),
    Transition(
        BatchState.LOADED, BatchEvent.REBUILD, BatchState.COMMITTED, "its receipt is in the table: the cursor is set behind it"
    ),
    Transition(BatchState.COMMITTED, BatchEvent.PLAN, BatchState.COMMITTED, "its own run finds its range again, to do it over"),
    Transition(BatchState.COMMITTED, BatchEvent.LOAD, BatchState.COMMITTED, "the same rows replace themselves"),
    Transition(BatchState.COMMITTED, BatchEvent.COMMIT, BatchState.COMMITTED, "nothing to do: it has happened"),
    Transition(BatchState.COMMITTED, BatchEvent.REBUILD, BatchState.COMMITTED, "its receipt is in the table"),
)
"""Events that are missing in a state cannot happen there: without a plan there is nothing to load or to commit."""
