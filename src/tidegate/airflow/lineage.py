"""What a load tells OpenLineage: the topics that it read, the table that it wrote, the offset ranges, and the transform.

Airflow's OpenLineage provider asks a task for it when the task has ended. Without the provider nobody asks, and nothing of it
is imported. The interface is the provider's (`airflow.providers.openlineage.extractors.base`, OpenLineage spec 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidegate.core.model.ranges import merged, total_count
from tidegate.core.state.jobs import LoadJob, LoadResult

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

BOOTSTRAP = "kafka.bootstrap.servers"
MOST_RANGES = 500
"""Ranges that one event names; of more, their number is told."""
SCHEMA = "urn:tidegate:run-facet:1"
"""What the facet is, as a name: docs/lineage.md describes it."""


def lineage_of(jobs: Sequence[LoadJob], results: Sequence[LoadResult]) -> OperatorLineage[Any, Any]:
    """What a task's loads read and wrote; without results, what they tried to.

    The jobs, at least one, are of one table; the last one has no answer where it failed.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415 - only with the provider
    from openlineage.client.event_v2 import Dataset, OutputDataset  # noqa: PLC0415
    from openlineage.client.facet_v2 import dataset_version_dataset, output_statistics_output_dataset  # noqa: PLC0415

    # the first of them stands for the cluster, as OpenLineage's naming has it
    job = jobs[0]
    server = job.reading.kafka_options.get(BOOTSTRAP, "").split(",")[0].strip()
    catalog, _, table = job.table.partition(".")
    written: dict[str, Any] = {}
    if results:
        version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(results[-1].receipt.snapshot))
        rows = sum(result.receipt.rows for result in results)
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
        written = {"facets": {"version": version}, "outputFacets": {"outputStatistics": statistics}}
    topics = sorted({r.topic for each in jobs for r in each.load.nonempty})
    return OperatorLineage(
        inputs=[Dataset(f"kafka://{server}", topic) for topic in topics],
        outputs=[OutputDataset(f"iceberg://{catalog}", table, **written)],
        run_facets={"tidegate": _facet(jobs, results)},
    )


def _facet(jobs: Sequence[LoadJob], results: Sequence[LoadResult]) -> Any:
    import attrs  # noqa: PLC0415 - OpenLineage's own
    from openlineage.client.facet_v2 import RunFacet  # noqa: PLC0415

    @attrs.define
    class TidegateRunFacet(RunFacet):  # type: ignore[misc]  # its type is not known without the provider
        pipeline: str
        seq: int
        replay: str | None
        transform: str
        offsets: int
        ranges: list[dict[str, Any]]

        @staticmethod
        def _get_schema() -> str:
            return SCHEMA

    job, ranges = jobs[0], merged(r for each in jobs for r in each.load.nonempty)
    named = ranges if len(ranges) <= MOST_RANGES else ()
    return TidegateRunFacet(
        pipeline=job.load.pipeline,
        seq=job.load.seq,
        replay=job.load.replay,
        # as it was imported, with its version, where it came to that
        transform=results[0].receipt.write.transform if results else job.transform,
        offsets=total_count(ranges),
        ranges=[{"topic": r.topic, "partition": r.partition, "from": r.from_offset, "until": r.until_offset} for r in named],
    )
