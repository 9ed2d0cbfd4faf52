"""The life of one instance of a receiver during its lease, as one table: its states, and what each event does in each of them.

The supervisor moves by this table alone (`tidegate_receivers.runtime.supervisor`), and `docs/receiver-lifecycle.md` is made
from it by `make docs`. The states are those of Spark's `ReceiverSupervisor`, and `restarting`, which Spark does not tell from
`started`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from tidegate.core.model.errors import RequestError

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True)
class Transition(Generic[S, E]):
    """In `state`, `event` leads to `then`; `does` describes it in a few words."""

    state: S
    event: E
    then: S
    does: str


class State(StrEnum):
    """What the instance does."""

    INITIALIZED = "initialized"
    STARTED = "started"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"


MEANING = {
    State.INITIALIZED: "nothing has been opened",
    State.STARTED: "the source is open, and what it stores goes to Kafka",
    State.RESTARTING: "the source is closed and waits for its delay; what it has stored goes to Kafka",
    State.STOPPING: "the source accepts nothing new; what it has stored goes to Kafka, for as long as the drain may take",
    State.STOPPED: "nothing is open",
}


class Event(StrEnum):
    """What happens to the instance."""

    START = "start"
    FAIL = "fail"
    STOP = "stop"
    DRAINED = "drained"


TRANSITIONS = (
    Transition(State.INITIALIZED, Event.START, State.STARTED, "`on_start` has opened the source"),
    Transition(State.INITIALIZED, Event.FAIL, State.RESTARTING, "`on_start` raised; the error is reported, the delay begins"),
    Transition(State.INITIALIZED, Event.STOP, State.STOPPING, "the lease was over, or was ended, before the source was open"),
    Transition(
        State.STARTED, Event.FAIL, State.RESTARTING, "the error is reported, `on_stop` closes the source, the delay begins"
    ),
    Transition(State.STARTED, Event.STOP, State.STOPPING, "`on_stop` closes the source"),
    Transition(State.RESTARTING, Event.START, State.STARTED, "the delay is over, and `on_start` has opened the source again"),
    Transition(State.RESTARTING, Event.FAIL, State.RESTARTING, "`on_start` raised again; the next delay is longer"),
    Transition(State.RESTARTING, Event.STOP, State.STOPPING, "the rest of the delay is not waited for"),
    Transition(State.STOPPING, Event.FAIL, State.STOPPING, "the error is reported; what is stored is still delivered"),
    Transition(State.STOPPING, Event.DRAINED, State.STOPPED, "all is delivered, or the time of the drain is over"),
)
"""Events that are missing in a state cannot happen there."""

_THEN = {(t.state, t.event): t.then for t in TRANSITIONS}


def after(state: State, event: Event) -> State:
    """The state that the event leads to.

    Raises:
        RequestError: the event cannot happen in this state.
    """
    try:
        return _THEN[state, event]
    except KeyError:
        raise RequestError(
            f"a receiver that is {state} cannot meet {event!r}", fix=f"See the table in {__name__}", state=state
        ) from None


@dataclass(frozen=True, slots=True)
class Restarts:
    """How long a receiver waits before it is started again.

    Args:
        first_s: seconds before the first restart, without jitter.
        longest_s: seconds that no delay exceeds.
        forget_s: a receiver that ran for so many seconds has no failures behind it.
    """

    first_s: float = 1.0
    longest_s: float = 30.0
    forget_s: float = 60.0

    def failures(self, before: int, ran_s: float) -> int:
        """Failures in a row, this one counted, of a receiver that had `before` and then ran for `ran_s` seconds."""
        return 1 if ran_s >= self.forget_s else before + 1

    def delay_s(self, failures: int, draw: float) -> float:
        """Seconds to wait after so many failures in a row, from 1: they double, and a random half is taken off.

        Args:
            failures: in a row, at least 1.
            draw: a random number from 0 to 1, so that many receivers that fail together do not come back together.
        """
        most_s = min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 60))
        return most_s * (1 - draw / 2)
