"""The laws of `Downstream`: what waits is what was landed and not loaded, and what cannot be known is an error."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tidegate.core.errors import TidegateError
from tidegate.core.ports import Downstream

Count = Callable[[int], None]


class DownstreamContract:
    """Laws of `Downstream`.

    Fixtures of the subclass:
        downstream: the port under test; nothing has been landed yet, and the pipeline has loaded nothing.
        land: lands so many records more.
        load: lets the pipeline commit so many more; it is called before the port is asked for the first time.
        unreachable: one whose brokers do not answer.
    """

    def test_what_waits_is_what_was_landed_and_not_loaded(self, downstream: Downstream, land: Count, load: Count) -> None:
        """Also beyond what was loaded before the first question."""
        land(10)
        load(4)
        assert downstream.ask().lag == 6
        land(5)
        assert downstream.ask().lag == 11

    def test_all_waits_of_a_pipeline_that_has_not_run(self, downstream: Downstream, land: Count) -> None:
        """Nothing is known of what it will load."""
        assert downstream.ask().lag == 0
        land(3)
        assert downstream.ask().lag == 3

    def test_what_is_heard_can_be_gone_by(self, downstream: Downstream, land: Count) -> None:
        """A rate is above 0, the instance itself shares, and shares of buffers are shares."""
        land(1)
        heard = downstream.ask()
        assert heard.rate is None or 0 < heard.rate < math.inf
        assert heard.instances >= 1
        assert all(0 <= share <= 1 and age_s >= 0 for share, age_s in heard.buffers.values())

    def test_what_cannot_be_known_is_an_error(self, unreachable: Downstream) -> None:
        """Never an old answer."""
        for _ in range(2):
            with pytest.raises(TidegateError):
                unreachable.ask()
