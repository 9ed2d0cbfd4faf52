"""A number that changes at given times, such as a load that a file has."""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from tidegate.core.model.errors import RequestError
from tidegate.core.rates.checks import MOST_RATE, MOST_SECONDS, is_number

COLUMNS = ("second", "records_per_s")
"""Of a CSV with a load."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A number such as an arrival rate or a cost: each value holds until the next one begins, the last one for ever.

    Args:
        values: (from second, value), in order, the first from 0.

    Raises:
        RequestError: the times do not begin with 0 or do not grow, or a number is negative or not finite.
    """

    values: Sequence[tuple[float, float]]
    _begins: list[float] = field(init=False, repr=False, compare=False)
    _sums: list[float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.values)
        object.__setattr__(self, "_begins", [begin for begin, _ in self.values])
        areas = ((until - since) * value for (since, value), (until, _) in pairwise(self.values))
        object.__setattr__(self, "_sums", list(accumulate(areas, initial=0.0)))

    @staticmethod
    def of(value: Steps | float) -> Steps:
        """Itself, or a number that never changes."""
        return value if isinstance(value, Steps) else Steps([(0.0, value)])

    def at(self, second: float) -> float:
        """The value at that time."""
        return self.values[self._step(second)][1]

    def total(self, since: float, until: float) -> float:
        """The sum over that time, such as records of an arrival rate."""
        return self._until(until) - self._until(since)

    def during(self, since: float, until: float, factor: float) -> Steps:
        """The same number, times `factor` from one second to another."""
        begins = sorted({begin for begin, _ in self.values} | {since, until})
        return Steps([(begin, self.at(begin) * (factor if since <= begin < until else 1.0)) for begin in begins])

    def _step(self, second: float) -> int:
        return max(0, bisect_right(self._begins, second) - 1)

    def _until(self, second: float) -> float:
        """The sum from 0."""
        step = self._step(second)
        begin, value = self.values[step]
        return self._sums[step] + (second - begin) * value


def _check(values: Sequence[tuple[float, float]]) -> None:
    if not values or values[0][0] != 0:
        raise RequestError("a number in steps begins at second 0", fix="Give (second, value) from second 0 on")
    last = -1.0
    for second, value in values:
        if not (is_number(second) and second > last):
            raise RequestError(f"second {second!r} is not after second {last:g}", fix="Give the steps in order of their times")
        if not is_number(value) or value < 0:
            raise RequestError(f"at second {second:g}: expected a number from 0, got {value!r}", fix="Give numbers from 0")
        last = second


def read_load(lines: Iterable[str], *, name: str) -> Steps:
    """The arrival rate of a CSV with the columns `second` and `records_per_s`, further ones ignored.

    Each row's rate holds from its second on, until the next row; the first row is at second 0, seconds grow.

    Args:
        lines: of the file, with the names of the columns first.
        name: of the file, for errors.

    Raises:
        RequestError: the file is empty or not such a CSV; names the line and what is wrong with it.
    """
    rows = csv.DictReader(lines, skipinitialspace=True, restval="")
    try:
        missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
        if missing:
            raise _refused(name, 1, f"the column {missing[0]} is missing; the first line names the columns")
        steps: list[tuple[float, float]] = []
        for row in rows:
            line = rows.line_num
            second = _number(row[COLUMNS[0]], COLUMNS[0], MOST_SECONDS, name, line)
            rate = _number(row[COLUMNS[1]], COLUMNS[1], MOST_RATE, name, line)
            if not steps and second != 0:
                raise _refused(name, line, f"the first second is {second:g}, not 0")
            if steps and second <= steps[-1][0]:
                raise _refused(name, line, f"second {second:g} is not after second {steps[-1][0]:g}")
            steps.append((second, rate))
    except csv.Error as error:
        raise _refused(name, rows.line_num + 1, str(error)) from error
    if not steps:
        raise _refused(name, 1, "there is no row after the names of the columns")
    return Steps(steps)


def _number(text: str, column: str, most: float, name: str, line: int) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= most:
        raise _refused(name, line, f"{column}: expected a number from 0 to {most:,.10g}, got {text!r}")
    return number


def _refused(name: str, line: int, problem: str) -> RequestError:
    return RequestError(
        f"{name}, line {line}: {problem}",
        fix="Write a CSV with the columns second,records_per_s: 0,1000 and, from second 600 on, 600,20000",
        file=name,
        line=line,
    )
