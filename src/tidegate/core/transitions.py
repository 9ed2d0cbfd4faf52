"""Tables of states: what each event does in each state, and how the docs show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def shown(meaning: Mapping[S, str], transitions: Sequence[Transition[S, E]], *, first: S, last: S) -> list[str]:
    """The lines of a page: a diagram from the first state to the last, what the states mean, and every transition."""
    return [
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {first}",
        *(f"    {t.state} --> {t.then}: {t.event}" for t in transitions if t.then is not t.state),
        f"    {last} --> [*]",
        "```",
        "",
        "| state | what it means |",
        "|---|---|",
        *(f"| {state} | {means} |" for state, means in meaning.items()),
        "",
        "| state | event | then | what happens |",
        "|---|---|---|---|",
        *(f"| {t.state} | {t.event} | {t.then} | {t.does} |" for t in transitions),
        "",
    ]
