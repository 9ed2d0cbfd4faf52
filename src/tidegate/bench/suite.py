"""What is compared, what was measured, and whether the bars are met. Pure.

A comparison has contenders, each with one value of each measure for every round. All that is reported follows from the medians
of these values; the values themselves are what is saved. A bar sets one median against another, so that it says the same on a
slower machine.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tidegate.core.errors import RequestError

if TYPE_CHECKING:
    from tidegate.bench.stage import Stage

Samples = dict[str, dict[str, list[float]]]
"""Contender, measure, and its value in each round."""

Medians = Mapping[str, Mapping[str, float]]
"""Contender, measure, and its median."""

FORMAT = 1
"""Of saved results."""


@dataclass(frozen=True)
class Term:
    """One median: a measure of a contender."""

    contender: str
    measure: str

    def of(self, medians: Medians) -> float | None:
        """Its value; None where it was not measured."""
        return medians.get(self.contender, {}).get(self.measure)


@dataclass(frozen=True)
class Bar:
    """What a figure has to reach: the value of `of` itself, its `ratio` to `against`, or its `difference` from it."""

    title: str
    of: Term
    bar: float
    stretch: float | None = None
    against: Term | None = None
    kind: Literal["value", "ratio", "difference"] = "ratio"
    at_least: bool = False
    unit: str = "times"

    def value(self, medians: Medians) -> float | None:
        """The figure; None where a part of it was not measured, or where there is nothing to divide by."""
        one = self.of.of(medians)
        other = None if self.against is None else self.against.of(medians)
        if one is None or self.kind == "value":
            return one
        if other is None or (self.kind == "ratio" and other == 0):
            return None
        return one / other if self.kind == "ratio" else one - other

    def verdict(self, value: float | None) -> Literal["not measured", "missed", "met", "stretch met"]:
        """Which of the two goals the figure reaches."""
        if value is None:
            return "not measured"
        if self.stretch is not None and self._reaches(value, self.stretch):
            return "stretch met"
        return "met" if self._reaches(value, self.bar) else "missed"

    def _reaches(self, value: float, goal: float) -> bool:
        return value >= goal if self.at_least else value <= goal


@dataclass(frozen=True)
class Comparison:
    """One question, how it is measured, and what counts as good.

    Attributes:
        name: as the command takes it.
        title: of its section on the page.
        about: what is measured and how, for a reader who wants to repeat or doubt it.
        measures: name and unit of each, in the order of the table's columns; the first one is plotted.
        bars: what has to be reached.
        shows: one sentence on what the medians say; only called with all that it names.
        measure: runs it.
    """

    name: str
    title: str
    about: str
    measures: Mapping[str, str]
    bars: tuple[Bar, ...]
    shows: Callable[[Medians], str]
    measure: Callable[[Stage], Samples]


@dataclass(frozen=True)
class Result:
    """What one comparison measured, where, and when (ISO 8601)."""

    name: str
    at: str
    machine: Mapping[str, str]
    rounds: int
    records: int
    samples: Samples

    @property
    def medians(self) -> dict[str, dict[str, float]]:
        """Of each contender's measures."""
        return {
            contender: {name: statistics.median(values) for name, values in measures.items() if values}
            for contender, measures in self.samples.items()
        }


def add(samples: Samples, contender: str, values: Mapping[str, float]) -> None:
    """One more round of a contender."""
    measures = samples.setdefault(contender, {})
    for name, value in values.items():
        measures.setdefault(name, []).append(value)


def to_json(results: Iterable[Result]) -> str:
    """What `from_json` reads."""
    return json.dumps({"format": FORMAT, "results": [vars(result) for result in results]}, indent=1) + "\n"


def from_json(text: str, name: str) -> list[Result]:
    """Saved results; `name` is that of their file.

    Raises:
        RequestError: it is not what `to_json` wrote.
    """
    try:
        found = json.loads(text)
        written = found["format"]
        results = [_result(each) for each in found["results"]]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise RequestError(
            f"{name} does not hold results of `tidegate bench`: {reason}", fix="Name a file that `tidegate bench --json` wrote"
        ) from error
    if written != FORMAT:
        raise RequestError(f"{name} has format {written}, and this version reads {FORMAT}", fix="Measure again")
    return results


def _result(body: Mapping[str, Any]) -> Result:
    samples = {
        contender: {measure: [_number(value) for value in values] for measure, values in measures.items()}
        for contender, measures in body["samples"].items()
    }
    machine = {str(key): str(value) for key, value in body["machine"].items()}
    return Result(str(body["name"]), str(body["at"]), machine, int(body["rounds"]), int(body["records"]), samples)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no measured value")
    return value


def overlay(files: Sequence[Iterable[Result]]) -> dict[str, Result]:
    """The results by comparison; those of a later file replace those of an earlier one."""
    return {result.name: result for results in files for result in results}
