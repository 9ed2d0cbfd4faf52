"""Which regular expressions a pipeline may use: those whose match against a topic's name ends soon.

Python's engine tries one way after another to match a name. The number of ways is bounded here from the expression itself, in
bits: a repetition has as many choices as the name has characters, an alternation as many as it has branches, and what is
repeated chooses anew each time. So `(a+)+` is refused, and `orders-.*` is not.

Pure: the standard library only.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable
from typing import Any

LONGEST_NAME = 249
"""Of a Kafka topic."""
MOST_BITS = 28.0
"""Four unbounded repetitions one after the other, which share the name's characters; a few seconds in the worst case."""


def ends_soon(pattern: str) -> bool:
    """Whether the pattern is a regular expression, and its match against any topic's name ends."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
            # the only way to the tree of an expression; the public module of it is deprecated
            tree = re._parser.parse(pattern)  # type: ignore[attr-defined]  # noqa: SLF001
        return bool(_bits(tree) <= MOST_BITS)
    except (re.error, OverflowError, RecursionError):
        return False


def _bits(items: Iterable[tuple[Any, Any]]) -> float:
    """The choices of a sequence, as a power of two."""
    return sum(_choices(str(kind), argument) for kind, argument in items)


def _choices(kind: str, argument: Any) -> float:
    if kind in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        least, most, body = argument
        times: int = min(most, LONGEST_NAME)
        lengths = times - min(least, times) + 1
        shared = 1.0 if times == LONGEST_NAME and lengths > 2 else 0.0
        return math.log2(lengths) - shared + times * _bits(body)
    if kind == "BRANCH":
        return math.log2(len(argument[1])) + max(_bits(branch) for branch in argument[1])
    if kind == "GROUPREF_EXISTS":
        return max(_bits(branch or ()) for branch in argument[1:])
    if kind in {"SUBPATTERN", "ASSERT", "ASSERT_NOT"}:
        return _bits(argument[-1])
    return _bits(argument) if kind == "ATOMIC_GROUP" else 0.0
