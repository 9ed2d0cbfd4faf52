"""Several policies on one plant, at equal utilization, and the figures by which they are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tidegate.core.model.errors import RequestError
from tidegate.core.rates.advice import full_batch
from tidegate.core.rates.checks import check_number
from tidegate.core.rates.policies import POLICIES, make_rate_policy
from tidegate.core.rates.policy import RatePolicy
from tidegate.simulation.plant import Plant, PlantBatch, Trace
from tidegate.simulation.steps import Steps

BAND = 0.25
"""How much longer than the interval a run may take."""

UNLIMITED = "unlimited"
"""The name of a policy without any bound, beside those of `make_rate_policy`."""


def policy_at(settings: Mapping[str, Any], plant: Plant, utilization: float) -> tuple[RatePolicy, float]:
    """The policy of `settings` for a plant, aiming at that utilization where the settings do not say otherwise.

    And the share of its bound that a batch gets: `pid` aims at the whole interval, so it is compared with a part of its bound.

    `static` without `max_records` gets the records of a full run, by the plant's cost at the beginning; `unlimited` has no
    bound.

    Raises:
        ConfigError: a setting is not valid.
        RequestError: `static` has no bound, and an empty run takes longer than its share of the interval.
    """
    check_number("utilization", utilization, most=1)
    name = settings.get("policy")
    usual: dict[str, Any] = {}
    if name == UNLIMITED:
        settings = {**settings, "policy": "static"}
    elif name == "static" and "max_records" not in settings:
        usual = {"max_records": _full_batch(plant, utilization)}
    elif name in ("fixed_point", "target"):
        usual = {"utilization": utilization}
    policy = make_rate_policy({**usual, **settings}, interval_s=plant.interval_s)
    return policy, utilization if name == "pid" else 1.0


def _full_batch(plant: Plant, utilization: float) -> int:
    a, b = (Steps.of(cost).at(0.0) for cost in (plant.overhead_s, plant.record_s))
    records = full_batch(a, b, interval_s=plant.interval_s, utilization=utilization)
    if not records:
        raise RequestError(
            f"static: an empty run takes {a:g} s, longer than {utilization:.0%} of the interval of {plant.interval_s:g} s",
            fix="Lengthen the interval, or leave out the policy static",
        )
    return records


def overlong(batches: Sequence[PlantBatch], interval_s: float) -> int:
    """Batches that took longer than 1.25 intervals."""
    return sum(batch.run_s > (1 + BAND) * interval_s for batch in batches)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A trace in a few figures.

    Args:
        batches: committed.
        records: of all of them.
        overlong: how many took longer than 1.25 intervals.
        longest_run_s: of one batch, without the wait before.
        worst_delay_s: from when a run was due until it started.
        most_lag, last_lag: records that waited when a run was planned or due, at most and at last.
        skipped_s: interval times the runs that were skipped while records waited: the run before had not ended, or an outage.
        idle: runs that were skipped because there was nothing to read.
        backlog_s: the longest time during which each run left records behind, to the commit of the one that took all;
            None: the last one left some.
    """

    batches: int
    records: int
    overlong: int
    longest_run_s: float
    worst_delay_s: float
    most_lag: int
    last_lag: int
    skipped_s: float
    idle: int
    backlog_s: float | None


def summarize(trace: Trace, interval_s: float) -> Summary:
    """The figures of a trace of runs that are due every interval."""
    batches, skipped = trace.batches, trace.skipped
    lags = trace.lags
    idle = sum(skip.reason == "nothing to read" for skip in skipped)
    return Summary(
        batches=len(batches),
        records=sum(batch.records for batch in batches),
        overlong=overlong(batches, interval_s),
        longest_run_s=max((batch.run_s for batch in batches), default=0.0),
        worst_delay_s=max((batch.started_s - batch.due_s for batch in batches), default=0.0),
        most_lag=max((lag for _, lag in lags), default=0),
        last_lag=lags[-1][1] if lags else 0,
        skipped_s=(len(skipped) - idle) * interval_s,
        idle=idle,
        backlog_s=_backlog_s(batches),
    )


def _backlog_s(batches: Sequence[PlantBatch]) -> float | None:
    if batches and batches[-1].records < batches[-1].lag:
        return None
    longest, since = 0.0, None
    for batch, following in pairwise(batches):
        if batch.records < batch.lag:
            since = batch.started_s if since is None else since
            if following.records == following.lag:
                longest, since = max(longest, following.ended_s - since), None
    return longest


@dataclass(frozen=True)
class Simulated:
    """A policy, what happened under it, and the figures of that."""

    name: str
    trace: Trace
    summary: Summary

    def to_json(self) -> dict[str, Any]:
        """JSON-ready: the figures, and each batch and skipped run; times are seconds of virtual time."""
        return {"summary": asdict(self.summary), **asdict(self.trace)}


def compare(
    plant: Plant,
    policies: Mapping[str, tuple[RatePolicy, float]],
    seconds: float,
    *,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Simulated]:
    """Each policy on the plant, by itself.

    Args:
        plant: the pipeline.
        policies: as `policy_at`, by the name that they are shown under.
        seconds: of virtual time.
        seed: of the noise.
        progress: called with how many policies are done.

    Raises:
        RequestError: as `Plant.run`.
    """
    done = []
    for k, (name, (policy, share)) in enumerate(policies.items()):
        progress(k)
        trace = plant.run(policy, seconds, share=share, seed=seed)
        done.append(Simulated(name, trace, summarize(trace, plant.interval_s)))
    return done


def parse_policy(text: str) -> dict[str, Any]:
    """The settings in a text such as `target` or `pid,min_rate=10,proportional=0.8`.

    Raises:
        RequestError: the policy is unknown, or a setting is no name=number.
    """
    name, *rest = (part.strip() for part in text.split(","))
    known = (*POLICIES, UNLIMITED)
    if name not in known:
        raise RequestError(
            f"policy: expected one of {', '.join(known)}, got {name!r}", fix=f"Set policy to one of {', '.join(known)}"
        )
    return {"policy": name, **dict(map(_setting, rest))}


def _setting(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not name or not math.isfinite(number):
        raise RequestError(
            f"policy: expected a setting as name=number, got {text!r}", fix="Write the settings as in pid,min_rate=10"
        )
    return name, int(number) if number == int(number) and "." not in value else number
