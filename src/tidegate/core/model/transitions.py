"""Tables of states: what each event does in each state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True)
class Transition(Generic[S, E]):
    """In `state`, `event` leads to `then`; `does` describes it in a few words."""

    state: S
    event: E
    then: S
    does: str
