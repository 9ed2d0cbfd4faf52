"""A load to simulate, as a file has it: records/s that arrive, from given times on."""

from __future__ import annotations

import csv
from collections.abc import Iterable

from tidegate.core.errors import RequestError
from tidegate.core.rates.checks import MOST_RATE, MOST_SECONDS
from tidegate.core.simulation.steps import Steps

COLUMNS = ("second", "records_per_s")


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
