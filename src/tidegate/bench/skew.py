"""Comparison `skew`: a load with and without `split`, where one partition of the topic holds 90 % of the records.

More than 1.8 times cannot be on two cores: nine tenths of the records are one core's work when nothing is split. Both ways need
the same CPU time, and split uses both cores for all of it, also for what the broker, the garbage collector and the JVM's
compiler do on the idle core beside a whole load. With `parse_json`, Python workers decode a large load, so that also a whole
load keeps both cores busy.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tidegate.bench.stage import Stage, rate_of, transform
from tidegate.bench.suite import Bar, Comparison, Medians, Samples, Term
from tidegate.core.config.pipeline import Split
from tidegate.core.errors import RequestError
from tidegate.core.load.job import LoadJob
from tidegate.spark.load import load_range
from tidegate.spark.session import connect

PARTITIONS = 3
# Six pieces a core: with three, one core still works on the last piece while the other has none left.
SPLIT = Split(min_partitions=12)
SUFFIXES = {"parse_json": "", "from_json": ", from_json"}
"""What the names of the contenders of each transform end with."""


def skewed(records: int) -> tuple[int, ...]:
    """Nine tenths of the records for partition 0, the rest evenly for the others."""
    small = records // 10 // (PARTITIONS - 1)
    return records - small * (PARTITIONS - 1), *[small] * (PARTITIONS - 1)


def measure(stage: Stage) -> Samples:
    """Each load replaces the same range of the same table."""
    platform = stage.up("kafka", "spark")
    records = stage.records // 2
    ranges = stage.filled("skewed", skewed(records))
    with connect(platform.spark_remote, name="bench") as spark:

        def load(job: LoadJob) -> None:
            rows = load_range(spark, job, spark_jobs=stage.spark_jobs).receipt.rows
            if rows != records:
                raise RequestError(f"{rows} rows of {records} records", fix="Report it: a load lost or doubled records")

        jobs: dict[str, LoadJob] = {}
        for name, suffix in SUFFIXES.items():
            whole = LoadJob("skew", 0, "bench", ranges, transform(name), f"lake.bench.skew_{name}", stage.options, redo=True)
            jobs |= {f"whole{suffix}": whole, f"split{suffix}": replace(whole, split=SPLIT)}
        rounds = {name: partial(rate_of, partial(load, job), records) for name, job in jobs.items()}
        return stage.alternate(rounds, warm_up=3)


def _ratio(m: Medians, name: str) -> float:
    suffix = SUFFIXES[name]
    return m[f"split{suffix}"]["rate"] / m[f"whole{suffix}"]["rate"]


COMPARISON = Comparison(
    name="skew",
    title="One partition with 90 % of the records",
    about="A load of half of `--records` JSON records from three partitions, as one task a partition (`whole`) and with "
    "`split: {min_partitions: 12}`. On two cores, more than 1.8 times cannot be; and where Python workers decode the records "
    "(`parse_json`), the JVM and a worker share the work of one task.",
    measures={"rate": "records/s", "time": "s"},
    bars=tuple(
        Bar(
            f"skew: split, to whole partitions{suffix}",
            Term(f"split{suffix}", "rate"),
            1.5,
            against=Term(f"whole{suffix}", "rate"),
            at_least=True,
        )
        for suffix in SUFFIXES.values()
    ),
    shows=lambda m: (
        f"With `split`, the load is {_ratio(m, 'from_json'):.2f} times as fast with `from_json`, "
        f"and {_ratio(m, 'parse_json'):.2f} times with `parse_json`."
    ),
    measure=measure,
)
