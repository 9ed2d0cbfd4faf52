"""A rule that names one kind of failure by its text. `tidegate.spark.errors` applies all of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidegate.core.errors import TidegateError

LOOKED_UP = "the saved range stays, and the next try looks in the sink before it writes"
"""Part of the fix of every error after which a write may have landed."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One kind of failure: what its text holds, the error it is, what happened and what to do."""

    pattern: re.Pattern[str]
    error: type[TidegateError]
    message: str
    fix: str


def rule(pattern: str, error: type[TidegateError], message: str, fix: str) -> Rule:
    """A rule of a regular expression that is searched in the text."""
    return Rule(pattern=re.compile(pattern), error=error, message=message, fix=fix)
