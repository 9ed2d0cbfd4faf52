"""What a DAG of ours says of itself to Airflow's servers: whose it is, and what they need to know of the pipeline.

Servers do not read the files of pipelines. The scheduler has to make a pool, and the pages show lag and batches. So the plan
task of each DAG carries it in its documentation, which is part of the serialized DAG.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from tidegate.core.config.names import LONGEST_POOL, REPLAY_DAG
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.sinks import ICEBERG
from tidegate.core.model.watermarks import IsolationLevel

MARK = "tidegate"


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A pipeline, as its DAGs declare it. A DAG that an older version has serialized lacks the later ones.

    `assign` are the partitions that it reads, by topic; None: all of its topics.
    """

    pipeline: str
    pool: str
    slots: int
    table: str = ""
    sink: str = ICEBERG.name
    connection: str = ""
    isolation_level: IsolationLevel = "read_committed"
    interval_s: float | None = None
    assign: Mapping[str, tuple[int, ...]] | None = None

    @property
    def replay_dag(self) -> str:
        """The id of the DAG that replays the pipeline."""
        return f"{self.pipeline}{REPLAY_DAG}"

    @staticmethod
    def of(pipeline: Pipeline) -> Declared:
        """What the DAGs of a pipeline declare."""
        return Declared(
            pipeline=pipeline.name,
            pool=pipeline.pool,
            slots=pipeline.sink.slots,
            table=pipeline.sink.table,
            sink=pipeline.sink.kind,
            connection=pipeline.source.connection,
            isolation_level=pipeline.source.isolation_level,
            interval_s=pipeline.fixed_interval_s,
            assign=pipeline.source.assign,
        )

    @staticmethod
    def in_doc(doc: str | None) -> Declared | None:
        """What the documentation of a plan task says; None where the DAG is not ours."""
        try:
            said = json.loads(doc or "{}")[MARK]
            declared = Declared(**{f.name: said[f.name] for f in fields(Declared) if f.name in said})
        except (ValueError, KeyError, TypeError):
            return None
        # an insertion of a pool that fails would end the scheduler's transaction
        valid = (
            isinstance(declared.pool, str)
            and 0 < len(declared.pool) <= LONGEST_POOL
            and type(declared.slots) is int
            and declared.slots > 0
        )
        return declared if valid else None

    def to_doc(self) -> str:
        """The documentation of a plan task."""
        return json.dumps({MARK: asdict(self)})
