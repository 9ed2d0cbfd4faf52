"""What a failure of Spark says: its text, its condition, the line of its deepest cause; and rules that name a kind by its text.

`tidegate.spark.errors` applies the rules, those of each sink among them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tidegate.core.model.errors import TidegateError

ORIGIN_BROKEN = "tidegate: a row left the range:"
"""The start of the error that the origin guard raises inside a job."""
DECIDED_TWICE = "tidegate: a row is rejected, and was not before:"
"""The start of the error that the guard of quarantines raises inside a job."""
LOOKED_UP = "the saved range stays, and the next try looks in the sink before it writes"
"""Part of the fix of every error after which a write may have landed."""


class Rule(NamedTuple):
    """One kind of failure: what is searched in its text (a regular expression), the error it is, what happened, what to do.

    In `fix`, `{table}` is the table, `{topics}` are those of the load, and `{detail}` is what the expression's group has found.
    """

    pattern: str
    error: type[TidegateError]
    message: str
    fix: str


_CALL = re.compile(
    r"<\w+ of RPC that terminated with:\s*status = StatusCode\.(\w+)\s*details = \"(.*?)\"\s*debug_error_string = .*?>",
    re.DOTALL,
)
"""How gRPC prints a call that failed."""
_STEERS = re.compile("[`\u202a-\u202e\u2066-\u2069]")
_PACKAGE = re.compile(r"\b([a-z][\w]*\.)+(?=[A-Z]\w*(Exception|Error)\b)")
_NOISE = re.compile(
    r"^(Caused by: )?([\w.]*SparkException: )?"
    r"(An error occurred while calling|Job aborted due to stage failure|Writing job aborted|\[INTERNAL_ERROR\]"
    r"|JVM stacktrace|Driver stacktrace)"
)

_APART = re.compile(r"at |Caused by: |Suppressed: |\.\.\. \d+ more|==|JVM stacktrace|Driver stacktrace")
"""Lines that do not belong to the message before them."""


def condition_of(error: Exception) -> str:
    """Spark's name of an error condition, such as TABLE_OR_VIEW_NOT_FOUND; empty when it has none."""
    condition = getattr(error, "getCondition", None)
    return (condition() or "") if callable(condition) else ""


def is_missing(error: Exception) -> bool:
    """Whether Spark found no table of that name."""
    return condition_of(error).startswith(("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND"))


def first_line(text: str) -> str:
    """The line of the deepest cause in a JVM trace; without a trace, the first line that is not noise.

    A line that ends with a colon goes on with the next one, which says what it is about.
    """
    lines: list[str] = []
    for line in filter(None, (line.strip().removeprefix(": ") for line in text.splitlines())):
        goes_on = lines and lines[-1].endswith(":") and not _NOISE.match(lines[-1]) and not _APART.match(line)
        lines[-1:] = [f"{lines[-1]} {line}"] if goes_on else [*lines[-1:], line]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    informative = [line for line in lines if not line.startswith("at ") and not _NOISE.match(line)]
    line = ((causes[-1:] or informative[:1] or lines[:1]) or ["no message"])[0]
    return plain(_PACKAGE.sub("", line)[:500])


def text_of(error: Exception) -> str:
    """Message and JVM stack trace: Py4J keeps the trace in `_stackTrace`, Spark Connect hands it out by `getStackTrace`.

    For a failed gRPC call, only its details: the rest of its text describes the call.
    """
    call = _CALL.search(str(error))
    if call:
        status, details = call.groups()
        return details.strip() or f"Spark's server ended the call without a reason (gRPC status {status})"
    trace = getattr(error, "_stackTrace", None) or ""
    get_trace = getattr(error, "getStackTrace", None)
    if callable(get_trace):
        trace = trace or get_trace() or ""
    return f"{type(error).__name__}: {error}\n{trace}"


def grpc_status(error: Exception) -> str:
    """The status of a failed gRPC call, such as UNAVAILABLE; empty where the error is none."""
    for name in ("getGrpcStatusCode", "code"):
        status = getattr(error, name, None)
        if callable(status):
            return str(getattr(status(), "name", ""))
    call = _CALL.search(str(error))
    return call[1] if call else ""


def reason(error: Exception) -> str:
    """The name and the message of an exception, in one line; for a failed gRPC call the line of its cause."""
    if _CALL.search(str(error)):
        return first_line(text_of(error))
    message = next((line for line in str(error).splitlines() if line.strip()), "no message")
    return plain(f"{type(error).__name__}: {message[:500]}")


def plain(text: str) -> str:
    """What a stranger says, such as a value of a record: without backticks, and what turns the text after it.

    Backticks mark commands of ours, which pages offer.
    """
    return _STEERS.sub("'", text)
