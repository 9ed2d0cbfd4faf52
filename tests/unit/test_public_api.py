"""Laws of what others import from `tidegate`."""

from __future__ import annotations

import inspect
import subprocess
import sys
from operator import attrgetter

import pytest
from typer.testing import CliRunner

import tidegate
from tidegate.cli import commands

LOADED = "import sys, tidegate; print(*sorted(m for m in sys.modules if m.startswith('tidegate')))"
SIGNATURES = {
    "build_dags": "(folder, *, spark_jobs, on_failure=())",
    "header": "(records, name)",
    "make_rate_policy": "(settings, *, interval_s)",
    "max_messages_per_partition": "(lags, *, rate, max_rate_per_partition, min_rate_per_partition, interval_s)",
    "merged": "(ranges)",
    "parse_json": "(df, schema, *, column='value', parser=None)",
    "reject": "(rows, condition, reason)",
    "reschedule_receiver": "(receiver, preferred, tracked, workers)",
    "schedule_receivers": "(preferred, workers)",
    "share_limit": "(sizes, limit)",
    "split_ranges": "(ranges, *, min_partitions, max_records_per_partition)",
    "OffsetRange": "(topic, partition, from_offset, until_offset)",
    "BatchTiming": "(records, bound, run_ms, load_ms, scheduling_delay_ms, ended_at_ms)",
    "RatePolicy.start": "(self)",
    "RatePolicy.bound": "(self, state)",
    "RatePolicy.observe": "(self, state, timing)",
    "PidRateEstimator.compute": "(self, time_ms, elements, processing_delay_ms, scheduling_delay_ms)",
    "Worker": "(name, host)",
    "Tracked": "(state, workers=())",
    "RateLimiter": "(max_rate=None, initial_rate=None)",
    "RateLimiter.update": "(self, rate)",
    "RateLimiter.acquire": "(self, records, now_s)",
    "WatermarkThrottle": "(high=0.9, low=0.4, expiry_s=30.0)",
    "WatermarkThrottle.report": "(self, instance, used, capacity, *, now_s)",
    "WatermarkThrottle.throttled": "(self, now_s)",
}
"""Names of arguments count: others call by keyword."""


def test_every_public_name_is_there_and_documented_and_no_other() -> None:
    assert [name for name in tidegate.__all__ if not inspect.getdoc(getattr(tidegate, name))] == []
    assert {*tidegate.__all__} <= {*dir(tidegate)}
    assert {name for name in tidegate.__all__ if name[0].islower()} <= SIGNATURES.keys()
    assert not hasattr(tidegate, "nothing")


def test_importing_the_package_loads_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["tidegate"]


@pytest.mark.parametrize("name", SIGNATURES)
def test_what_is_public_has_the_signature_that_others_call(name: str) -> None:
    signature = inspect.signature(attrgetter(name)(tidegate))
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    assert str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)) == SIGNATURES[name]


def test_the_command_says_the_version_of_the_package() -> None:
    """Its one place is `tidegate.__version__`, from which the build takes it too."""
    said = CliRunner().invoke(commands(), ["--version"])
    assert (said.exit_code, said.stdout) == (0, f"tidegate {tidegate.__version__}\n")
