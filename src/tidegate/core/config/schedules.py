"""Which schedules a pipeline may have: Airflow's presets, and the cron expressions of five fields that have a next run.

Airflow reads cron expressions by croniter. The grammar here is a part of croniter's and is stricter, for three reasons:

- croniter accepts expressions that never run: `0 0 31 2 *` is valid to it, and fails in the scheduler when the next run is
  computed;
- it accepts expressions that mean something else than they seem to: `5-5 * * * *` is every minute, a sixth field is seconds,
  and `r` is a minute chosen at random, by each process anew;
- pipeline files are validated where Airflow and croniter are not installed, by the same rules and with the same messages.

A test shows that croniter finds a next run of whatever is accepted here. As in cron, an expression that restricts both the day
of the month and the day of the week runs when either of them matches.
"""

from __future__ import annotations

import re
from itertools import pairwise

CONTINUOUS = "@continuous"
FIXED_TIMES = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
PRESETS = (CONTINUOUS, *FIXED_TIMES)
DAY_S = 24 * 3600

_MONTHS = {
    name: n for n, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
_DAYS = {name: n for n, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
_LONGEST_MONTH = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ITEM = re.compile(r"(?:(?P<all>\*)|(?P<first>\d{1,2}|[a-z]{3})(?:-(?P<last>\d{1,2}|[a-z]{3}))?)(?:/(?P<step>\d{1,2}))?")
_NTH = re.compile(r"(?:(?P<nth>\d|[a-z]{3})#[1-5]|l(?P<last>\d))")
"""An item that is the n-th weekday of a month, or its last one."""
_ANY = ("*", "?")


def is_schedule(text: str) -> bool:
    """Whether it is a preset, or five cron fields that together have a next run."""
    if text in PRESETS:
        return True
    fields = text.lower().split()
    if len(fields) != 5:
        return False
    minute, hour, day, month, weekday = fields
    months = _numbers(month, 1, 12, _MONTHS)
    if _numbers(minute, 0, 59) is None or _numbers(hour, 0, 23) is None or months is None:
        return False
    if "#" in weekday or "l" in weekday:
        return day in _ANY and _is_nth(weekday, months)
    if weekday in _ANY:
        return _has_day(day, months)
    return _numbers(weekday, 0, 7, _DAYS) is not None and _has_day(day, set(_MONTHS.values()))


def shortest_gap_s(text: str) -> int | None:
    """Seconds of the shortest time between two runs of a schedule, at most a day; None for one without fixed times."""
    if text in PRESETS:
        return {CONTINUOUS: None, "@hourly": 3600}.get(text, DAY_S)
    minute, hour, *_ = text.lower().split()
    minutes, hours = sorted(_numbers(minute, 0, 59) or {0}), sorted(_numbers(hour, 0, 23) or {0})
    hours_apart = min([later - earlier for earlier, later in pairwise(hours)] + [24 - hours[-1] + hours[0]])
    across = (hours_apart - 1) * 60 + 60 - minutes[-1] + minutes[0]
    return 60 * min([later - earlier for earlier, later in pairwise(minutes)] + [across])


def mean_gap_s(text: str) -> float | None:
    """Seconds between two runs of a schedule that runs each day, on average; None for others, and without fixed times."""
    if text in PRESETS:
        return {"@hourly": 3600.0, "@daily": float(DAY_S)}.get(text)
    minute, hour, *days = text.lower().split()
    if any(field not in _ANY for field in days):
        return None
    return DAY_S / len(_numbers(minute, 0, 59) or {0}) / len(_numbers(hour, 0, 23) or {0})


def _is_nth(field: str, months: set[int]) -> bool:
    """Whether each item is the n-th weekday of a month (`mon#2`) or its last one (`L5`). February need not have a fifth."""
    matches = [_NTH.fullmatch(item) for item in field.split(",")]
    valid = all(match is not None and _number(match["nth"] or match["last"], 0, 7, _DAYS) is not None for match in matches)
    return valid and (months != {2} or "#5" not in field)


def _has_day(field: str, months: set[int]) -> bool:
    """Whether the days of the month are valid, and one of the months has one of them."""
    if field == "?":
        return True
    days: set[int] = set()
    for item in field.split(","):
        days_of_item = {1} if item == "l" else _numbers(item, 1, 31)
        if days_of_item is None:
            return False
        days |= days_of_item
    return min(days) <= max(_LONGEST_MONTH[month] for month in months)


def _numbers(field: str, low: int, high: int, names: dict[str, int] | None = None) -> set[int] | None:
    """All numbers of a field; None where it is not valid."""
    numbers: set[int] = set()
    for item in field.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            return None
        first = low if match["all"] else _number(match["first"], low, high, names)
        last = high if match["all"] or (match["step"] and not match["last"]) else first
        if match["last"]:
            last = _number(match["last"], low, high, names)
        step = int(match["step"] or 1)
        # croniter reads a range of one number as every number
        if first is None or last is None or step == 0 or (match["last"] and first == last):
            return None
        numbers.update(range(first, last + 1, step) if first <= last else {*range(first, high + 1), *range(low, last + 1)})
    return numbers


def _number(text: str, low: int, high: int, names: dict[str, int] | None = None) -> int | None:
    value = int(text) if text.isdigit() else (names or {}).get(text)
    return value if value is not None and low <= value <= high else None
