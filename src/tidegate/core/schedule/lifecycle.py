"""The life of a batch, as one table: its states, and what each event does in each of them.

`docs/lifecycle.md` is made from this table by `make docs`. A property test drives `tidegate.core.schedule.run` through every
event in every order and holds the result against it. A crash is no event: a state is saved when it begins,
so the next call continues.
"""

from __future__ import annotations

from enum import StrEnum

from tidegate.core.transitions import Transition


class State(StrEnum):
    """How far a batch is; each state is what anybody can read, from Variables and the table."""

    NEW = "new"
    PLANNED = "planned"
    LOADED = "loaded"
    COMMITTED = "committed"


MEANING = {
    State.NEW: "nothing is saved of it",
    State.PLANNED: "its range is saved as a Variable; nothing else has happened",
    State.LOADED: "the table holds a commit with its receipt",
    State.COMMITTED: "the cursor has moved past it",
}


class Event(StrEnum):
    """What a task, an operator or a zombie can do to a batch."""

    PLAN = "plan"
    LOAD = "load"
    COMMIT = "commit"
    REBUILD = "rebuild"


TRANSITIONS = (
    Transition(State.NEW, Event.PLAN, State.PLANNED, "the range is saved by one write, before any work"),
    Transition(State.PLANNED, Event.PLAN, State.PLANNED, "the same run finds its range; another run adopts a copy of it"),
    Transition(State.PLANNED, Event.LOAD, State.LOADED, "one commit of the table replaces the rows and carries the receipt"),
    Transition(State.PLANNED, Event.COMMIT, State.PLANNED, "refused: there is no receipt"),
    Transition(State.PLANNED, Event.REBUILD, State.NEW, "dropped: its offsets are planned again"),
    Transition(State.LOADED, Event.PLAN, State.LOADED, "as in planned"),
    Transition(State.LOADED, Event.LOAD, State.LOADED, "the receipt is found: nothing is written"),
    Transition(State.LOADED, Event.COMMIT, State.COMMITTED, "requirement and update: the cursor moves"),
    Transition(State.LOADED, Event.REBUILD, State.COMMITTED, "its receipt is in the table: the cursor is set behind it"),
    Transition(State.COMMITTED, Event.PLAN, State.COMMITTED, "its own run finds its range again, to do it over"),
    Transition(State.COMMITTED, Event.LOAD, State.COMMITTED, "the same rows replace themselves"),
    Transition(State.COMMITTED, Event.COMMIT, State.COMMITTED, "nothing to do: it has happened"),
    Transition(State.COMMITTED, Event.REBUILD, State.COMMITTED, "its receipt is in the table"),
)
"""Events that are missing in a state cannot happen there: without a plan there is nothing to load or to commit."""


def state_of(*, saved: bool, landed: bool, committed: bool) -> State:
    """The state of a batch.

    Args:
        saved: a Variable holds its range.
        landed: the table holds its receipt.
        committed: the cursor has moved past it.
    """
    if committed:
        return State.COMMITTED
    if landed:
        return State.LOADED
    return State.PLANNED if saved else State.NEW
