"""The policies of a receiver's back-pressure on one burst, in virtual time; prints the tables of docs/receiver-backpressure.md.

    python -m tests.bench.receiver_policies [--plot docs/receiver-backpressure.svg] [--json]

Two instances of at most 3,000 records/s each are in front of a pipeline that loads 800 records/s in runs of a minute, under the
rate policy `target`. Senders send half of that, and four times as much for five minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tidegate.cli.charts import RECEIVER_FIGURES
from tidegate.cli.plots import open_receiver_plot
from tidegate.core.rates.control import RateControl
from tidegate.core.receivers.backpressure import Backpressure
from tidegate.core.simulation.bursts import FULL_BATCHES, POLICIES, Burst, Throttled, backpressures, burst, compare_receivers
from tidegate.core.simulation.plant import Plant
from tidegate.core.simulation.receivers import Inlet

T, A, B = 60.0, 6.0, 1e-3
FULL = 48_000
"""Records of a run of 0.9 T."""
BACKLOG = FULL_BATCHES * FULL
USUAL = 400.0
INLET = Inlet(Plant(T, A, B, USUAL), RateControl({"policy": "target"}, T), instances=2, max_rate=3000)

Tables = Mapping[str, Mapping[str, Throttled]]


def measured(asked: Burst) -> Tables:
    """Each table, by its title: what is compared, by name."""
    every = {each.name: each for each in compare_receivers(asked, backpressures({}, POLICIES, BACKLOG))}
    sizes = {f"{batches} full": batches * FULL for batches in (1, 2, 4)}
    free = replace(asked, inlet=replace(asked.inlet, max_rate=None))
    marks = {
        f"{low}": Backpressure("watermark", max_backlog=BACKLOG, low=low, high=high)
        for high, low in ((0.9, 0.4), (0.9, 0.6), (0.9, 0.8))
    }
    return {
        "The burst": every,
        "`credit`, by `max_backlog` in batches": _by_name(
            asked, {name: Backpressure("credit", max_backlog=records) for name, records in sizes.items()}
        ),
        "`watermark`, by `low`": _by_name(asked, marks),
        "Without `rate.max`": _by_name(free, backpressures({}, POLICIES, BACKLOG)),
    }


def _by_name(asked: Burst, policies: Mapping[str, Backpressure]) -> dict[str, Throttled]:
    return {each.name: each for each in compare_receivers(asked, policies)}


def markdown(title: str, done: Mapping[str, Throttled]) -> Sequence[str]:
    """One table."""
    rows = [["", *done], ["---"] * (len(done) + 1)]
    rows += [[name, *(shown(each.figures) for each in done.values())] for name, shown in RECEIVER_FIGURES.items()]
    return ["", f"**{title}**", "", *(f"| {' | '.join(row)} |" for row in rows)]


def main() -> None:
    """Measure, print, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    asked = burst(INLET)
    tables = measured(asked)
    if given.plot:
        title = "400 records/s, and 1600 from minute 10 to 15; the pipeline loads 800"
        open_receiver_plot(given.plot)(title, asked, list(tables["The burst"].values()))
    if given.json:
        found = json.dumps({title: {name: each.to_json() for name, each in done.items()} for title, done in tables.items()})
    else:
        found = "\n".join(line for title, done in tables.items() for line in markdown(title, done))
    print(found)  # noqa: T201


if __name__ == "__main__":
    main()
