"""What a load tells OpenLineage: the topics that it read, the table that it wrote, the offset ranges, and the transform.

Airflow's OpenLineage provider asks a task for it when the task has ended. Without the provider nobody asks, and nothing of it
is imported. The interface is the provider's (`airflow.providers.openlineage.extractors.base`, OpenLineage spec 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.core.load.job import LoadJob, LoadResult
from tidegate.core.offsets.ranges import range_to_json, total_count

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

BOOTSTRAP = "kafka.bootstrap.servers"
MOST_RANGES = 500
"""Ranges that one event names; of more, their number is told."""
SCHEMA = "urn:tidegate:run-facet:1"
"""What the facet is, as a name: docs/lineage.md describes it."""


def lineage_of(job: LoadJob, result: LoadResult | None) -> OperatorLineage[Any, Any]:
    """What a load read and wrote; without a result, what it tried to.

    Args:
        job: the load.
        result: its answer; None where it failed.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415 - only with the provider
    from openlineage.client.event_v2 import Dataset, OutputDataset  # noqa: PLC0415
    from openlineage.client.facet_v2 import dataset_version_dataset, output_statistics_output_dataset  # noqa: PLC0415

    # the first of them stands for the cluster, as OpenLineage's naming has it
    server = job.reading.kafka_options.get(BOOTSTRAP, "").split(",")[0].strip()
    catalog, _, table = job.table.partition(".")
    output = OutputDataset(f"iceberg://{catalog}", table)
    if result is not None:
        version = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(result.receipt.snapshot))
        written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=result.receipt.rows)
        output = OutputDataset(
            f"iceberg://{catalog}", table, facets={"version": version}, outputFacets={"outputStatistics": written}
        )
    topics = sorted({r.topic for r in job.load.nonempty})
    return OperatorLineage(
        inputs=[Dataset(f"kafka://{server}", topic) for topic in topics],
        outputs=[output],
        run_facets={"tidegate": _facet(job, result)},
    )


def _facet(job: LoadJob, result: LoadResult | None) -> Any:
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

    ranges = job.load.nonempty
    named = ranges if len(ranges) <= MOST_RANGES else ()
    return TidegateRunFacet(
        pipeline=job.load.pipeline,
        seq=job.load.seq,
        replay=job.load.replay,
        # as it was imported, with its version, where it came to that
        transform=job.transform if result is None else result.receipt.write.transform,
        offsets=total_count(ranges),
        ranges=[range_to_json(r) for r in named],
    )
