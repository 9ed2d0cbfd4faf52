"""Laws of what others import from `tidegate`."""

from __future__ import annotations

import inspect
import subprocess
import sys

from typer.testing import CliRunner

import tidegate
from tidegate.cli import commands
from tidegate.core.model.errors import RequestError

LOADED = "import sys, tidegate; print(*sorted(m for m in sys.modules if m.startswith('tidegate')))"


def test_every_public_name_is_there_and_documented_and_no_other() -> None:
    assert [name for name in tidegate.__all__ if not inspect.getdoc(getattr(tidegate, name))] == []
    assert {*tidegate.__all__} <= {*dir(tidegate)}
    assert not hasattr(tidegate, "nothing")


def test_importing_the_package_loads_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tidegate"]


def test_public_values_are_ordered_and_half_open() -> None:
    assert tidegate.TopicPartition("a", 1) < tidegate.TopicPartition("a", 2) < tidegate.TopicPartition("b", 0)
    r = tidegate.OffsetRange("t", 0, 3, 5)
    assert (r.count, r.topic_partition) == (2, tidegate.TopicPartition("t", 0))


def test_public_functions_have_the_signatures_that_others_call() -> None:
    """Names of arguments count: they are called by keyword."""
    parameters = {
        name: list(inspect.signature(getattr(tidegate, name)).parameters) for name in tidegate.__all__ if name[0].islower()
    }
    assert parameters == {
        "build_dags": ["folder", "spark_jobs"],
        "header": ["records", "name"],
        "make_rate_policy": ["settings", "interval_s"],
        "max_messages_per_partition": ["lags", "rate", "max_rate_per_partition", "min_rate_per_partition", "interval_s"],
        "parse_json": ["df", "schema", "column", "parser"],
        "reschedule_receiver": ["receiver", "preferred", "tracked", "workers"],
        "schedule_receivers": ["preferred", "workers"],
        "share_limit": ["sizes", "limit"],
        "split_ranges": ["ranges", "min_partitions", "max_records_per_partition"],
    }
    assert (
        tidegate.PidRateEstimator(1000.0).compute(time_ms=0, elements=1000, processing_delay_ms=500, scheduling_delay_ms=0)
        is None
    )


def test_public_classes_of_receivers_have_the_signatures_that_others_call() -> None:
    def signature(called: object) -> str:
        parameters = inspect.signature(called).parameters.values()  # type: ignore[arg-type]
        return ", ".join(str(p.replace(annotation=inspect.Parameter.empty)) for p in parameters)

    constructors = {
        kind: signature(kind) for kind in (tidegate.Worker, tidegate.Tracked, tidegate.RateLimiter, tidegate.WatermarkThrottle)
    }
    assert constructors == {
        tidegate.Worker: "name, host",
        tidegate.Tracked: "state, workers=()",
        tidegate.RateLimiter: "max_rate=None, initial_rate=None",
        tidegate.WatermarkThrottle: "high=0.9, low=0.4, expiry_s=30.0",
    }
    throttle, limiter = tidegate.WatermarkThrottle(), tidegate.RateLimiter()
    assert signature(throttle.report).endswith("instance, used, capacity, now_s")
    assert inspect.signature(throttle.report).parameters["now_s"].kind is inspect.Parameter.KEYWORD_ONLY
    assert [signature(m) for m in (throttle.throttled, limiter.update, limiter.acquire)] == ["now_s", "rate", "records, now_s"]


def test_a_public_rate_policy_is_made_and_called_by_its_port() -> None:
    policy = tidegate.make_rate_policy({"policy": "fixed_point", "initial_records": 100}, interval_s=10)
    methods = {
        name: list(inspect.signature(getattr(tidegate.RatePolicy, name)).parameters)[1:]
        for name in ("start", "bound", "observe")
    }
    assert methods == {"start": [], "bound": ["state"], "observe": ["state", "timing"]}
    state = policy.observe(policy.start(), tidegate.BatchTiming(100, 100, 5000, 4000, 0, 60_000))
    assert (policy.bound(policy.start()), policy.bound(state)) == (100, 180)


def test_an_error_says_whether_to_try_again_and_how_to_put_it_right() -> None:
    error = RequestError("no", fix="Do", field=1)
    assert isinstance(error, tidegate.TidegateError)
    assert (error.fix, error.fields, error.retryable) == ("Do", {"field": 1}, False)


def test_the_command_says_the_version_of_the_package() -> None:
    """Its one place is `tidegate.__version__`, from which the build takes it too."""
    said = CliRunner().invoke(commands(), ["--version"])
    assert (said.exit_code, said.stdout) == (0, f"tidegate {tidegate.__version__}\n")
