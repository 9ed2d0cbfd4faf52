"""Laws of the error tree."""

from __future__ import annotations

import re

import pytest

from tidegate.core.model import errors
from tidegate.core.model.errors import BrokerUnavailable, SinkMisfit, TidegateError, _by_name


def test_the_tree_in_the_docs_is_the_tree_in_the_code() -> None:
    """Names, and what can be retried, are drawn as they are."""
    drawn = dict(re.findall(r"[├└]── (\w+)(.*)", errors.__doc__ or ""))
    real = {name: kind for name, kind in _by_name().items() if kind is not TidegateError and kind.__module__ == errors.__name__}
    assert drawn.keys() == real.keys()
    assert {name for name, rest in drawn.items() if "(retryable)" in rest} == {n for n, k in real.items() if k.retryable}


def test_a_message_ends_with_the_fix() -> None:
    """What happened, then what to do."""
    assert str(TidegateError("It broke", fix="Mend it")) == "It broke. Mend it"
    assert str(TidegateError("It broke")) == "It broke"


@pytest.mark.parametrize("error", [BrokerUnavailable("gone", fix="start it", servers="h:1", tries=3), SinkMisfit("no")])
def test_an_error_crosses_a_process_as_itself(error: TidegateError) -> None:
    """Class, message, fix and fields survive as JSON."""
    again = TidegateError.from_dict(error.to_dict())
    assert type(again) is type(error)
    assert (str(again), again.fix, again.retryable) == (str(error), error.fix, error.retryable)
    assert again.fields == error.fields


def test_an_unknown_error_is_still_a_tidegate_error() -> None:
    """A newer driver may know more names."""
    assert type(TidegateError.from_dict({"error": "Novel"})) is TidegateError
