"""The bars of rate control, measured for each policy in virtual time; prints the tables that docs/rates.md sums up.

    python -m tests.bench.rate_policies [--seeds 200]

All policies aim at 90 % of an interval of 60 s (`pid` gets nine tenths of its bound). A batch has settled when it and all
later ones are within 25 % of the policy's own fixed point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from tests.bench.cli import markdown, run
from tidegate.simulation import experiment
from tidegate.simulation.experiment import BAND, overlong, policy_at
from tidegate.simulation.plant import Plant, PlantBatch, Steps

T, B, RHO = 60.0, 1e-5, 0.9
OVERHEADS = (0.1, 0.3, 0.5)
"""a/T."""
POLICIES = ("static", "pid", "fixed_point", "target")
DOWN, BACK, END = 30, 60, 90
"""Intervals: the sink gets slower, recovers, and the simulation ends."""


@dataclass(frozen=True)
class Scenario:
    """One table: what happens, the columns, and the measurement of one policy."""

    name: str
    columns: tuple[str, ...]
    measure: Callable[[str, float, int], Sequence[str]]


def best(overhead: float, record_s: float = B) -> float:
    """The fixed point, in records."""
    return (RHO - overhead) * T / record_s


def saturated(overhead: float, **changes: Any) -> Plant:
    """More arrives than can be loaded."""
    return Plant(T, overhead * T, record_s=B, arrivals=2 / B, **changes)


def simulate(name: str, plant: Plant, intervals: int, *, seed: int = 0, **settings: Any) -> list[PlantBatch]:
    """The batches under a policy that aims at 90 % of the interval."""
    policy, share = policy_at({"policy": name, **settings}, plant, RHO)
    return plant.run(policy, intervals * T, share=share, seed=seed).batches


def part(batches: Sequence[PlantBatch], since: int, until: int) -> list[PlantBatch]:
    """The batches that started between these intervals."""
    return [batch for batch in batches if since * T <= batch.started_s < until * T]


def settled_after(batches: Sequence[PlantBatch], best: float) -> int:
    """Batches until all later ones are within `BAND` of the best size."""
    outside = [k for k, batch in enumerate(batches) if not 1 - BAND <= batch.records / best <= 1 + BAND]
    return outside[-1] + 1 if outside else 0


def growing(plant: Plant, *, since_s: float, intervals: int = 20, factor: float = 3.0) -> Plant:
    """The cost of a record grows evenly to `factor` times in so many intervals, stays for ten, and falls back in as many."""
    cost = Steps.of(plant.record_s).at(since_s)
    up = [(since_s + k * plant.interval_s, cost * (1 + (factor - 1) * k / intervals)) for k in range(1, intervals + 1)]
    fall_s = since_s + (intervals + 10) * plant.interval_s
    down = [(fall_s + k * plant.interval_s, cost * (factor - (factor - 1) * k / intervals)) for k in range(1, intervals + 1)]
    return replace(plant, record_s=Steps([(0.0, cost), *up, *down]))


def settled(batches: Sequence[PlantBatch], size: float) -> str:
    """Batches until settled; never where the last one is outside."""
    after = settled_after(batches, size)
    return "never" if after == len(batches) else str(after)


def least(batches: Sequence[PlantBatch], size: float) -> float:
    """The smallest batch after the second one."""
    return min(batch.records / size for batch in batches[2:])


def step(name: str, overhead: float, _seeds: int) -> Sequence[str]:
    """Down and back."""
    plant = experiment.step(saturated(overhead), since_s=DOWN * T, until_s=BACK * T)
    batches = simulate(name, plant, END)
    down, back = part(batches, DOWN, BACK), part(batches, BACK, END)
    low = min(least(down, best(overhead, 3 * B)), least(back, best(overhead)))
    return (
        settled(down, best(overhead, 3 * B)),
        settled(back, best(overhead)),
        f"{low:.2f}",
        str(overlong(down, T)),
        str(overlong(back, T)),
    )


def ramp(name: str, overhead: float, _seeds: int) -> Sequence[str]:
    plant = growing(saturated(overhead), since_s=DOWN * T)
    batches = part(simulate(name, plant, END), 20, END)
    cost = Steps.of(plant.record_s)
    sizes = [batch.records / best(overhead, cost.at(batch.started_s)) for batch in batches]
    return f"{min(sizes):.2f}", f"{max(batch.run_s for batch in batches) / T:.2f} T", str(overlong(batches, T))


def outage(name: str, overhead: float, _seeds: int) -> Sequence[str]:
    plant = Plant(T, overhead * T, record_s=B, arrivals=0.5 * best(overhead) / T, backlog=int(40 * best(overhead)))
    plant = experiment.outage(plant, since_s=30.5 * T, until_s=90.5 * T)
    batches = simulate(name, plant, 300)
    after = part(batches, 90, 300)
    full = [batch for batch in after if batch.records < batch.lag]
    drained = next((str(k + 1) for k, batch in enumerate(after) if batch.records == batch.lag), "never")
    return settled(full, best(overhead)), drained, str(overlong(batches, T))


def noise(name: str, overhead: float, seeds: int) -> Sequence[str]:
    plant = experiment.step(saturated(overhead, noise=0.1), since_s=20 * T, until_s=40 * T)
    long, low, down_after, back_after = [], [], [], []
    for seed in range(seeds):
        batches = simulate(name, plant, 60, seed=seed)
        down, back = part(batches, 20, 40), part(batches, 40, 60)
        long.append(overlong(batches, T))
        low.append((least(down, best(overhead, 3 * B)), least(back, best(overhead))))
        down_after.append(settled_after(down, best(overhead, 3 * B)))
        back_after.append(settled_after(back, best(overhead)))
    return (
        f"{fmean(long):.2f}",
        f"{median(down_after):g}",
        *_undershoot([down for down, _ in low]),
        f"{median(back_after):g}",
        *_undershoot([back for _, back in low]),
    )


def _undershoot(least_sizes: Sequence[float]) -> tuple[str, str]:
    """The median of the smallest sizes, and the share of seeds with one below 0.75."""
    return f"{median(least_sizes):.2f}", f"{sum(each < 0.75 for each in least_sizes) / len(least_sizes):.1%}"


SCENARIOS = (
    Scenario(
        "Each record costs three times as much from batch 30 to 60",
        ("settled after", "after it is back", "least size after the second batch", "longer than 1.25 T", "when back"),
        step,
    ),
    Scenario(
        "The cost grows to three times within 20 batches, and falls back",
        ("least size", "longest run", "longer than 1.25 T"),
        ramp,
    ),
    Scenario(
        "An outage of an hour, half a load, forty batches behind",
        ("settled after", "batches until drained", "longer than 1.25 T"),
        outage,
    ),
    Scenario(
        "10 % noise, {seeds} seeds: each record costs three times as much from batch 20 to 40; medians",
        (
            "longer than 1.25 T of 60 (mean)",
            "settled after",
            "least size after the second batch",
            "seeds below 0.75",
            "after it is back",
            "least size after its second batch",
            "of these, seeds below 0.75",
        ),
        noise,
    ),
)


def measure(seeds: int, _: Path) -> dict[str, list[list[str]]]:
    """Each scenario, with a row for each overhead and policy."""
    return {
        scenario.name.format(seeds=seeds): [
            ["a/T", "policy", *scenario.columns],
            *(
                [f"{overhead:g}", f"`{name}`", *scenario.measure(name, overhead, seeds)]
                for overhead in OVERHEADS
                for name in POLICIES
            ),
        ]
        for scenario in SCENARIOS
    }


def tables(found: dict[str, list[list[str]]]) -> str:
    """For a page."""
    return "\n".join(f"\n**{name}**\n\n{markdown(rows)}" for name, rows in found.items())


if __name__ == "__main__":
    run(__doc__, measure, show=tables, seeds=200)
