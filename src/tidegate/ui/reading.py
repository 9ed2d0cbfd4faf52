"""The views of a pipeline, read inside Airflow's API server, as far as database, brokers and table answer.

Saved state is read anew each time. Brokers and tables are asked every few seconds at most, whoever looks. What does not answer
is left out of a view and named in its `error`: the rest is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.airflow.database_store import DatabaseStore
from tidegate.airflow.declared import Declared
from tidegate.core.audit.views.batch import batch_view
from tidegate.core.audit.views.batches import entries, started_by
from tidegate.core.audit.views.lag import LagView, PartitionLag, measure_lag
from tidegate.core.audit.views.overview import by_trouble, overview, timing_to_json
from tidegate.core.audit.views.range_map import range_map
from tidegate.core.errors import StateCorrupt, TidegateError
from tidegate.core.load.receipt import Receipt
from tidegate.core.offsets.watermarks import Watermarks
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, Listing
from tidegate.core.state.saved_range import SavedRange
from tidegate.iceberg.history import IcebergReader
from tidegate.kafka.brokers import AdminBrokers
from tidegate.ui import server
from tidegate.ui.answers import Answer, Answers, now_ms

LOG_S, LAG_S, TABLE_S = 3.0, 5.0, 15.0
"""Seconds that answers are kept: the log's ends, the lag with its ages, the table's commits, whose metadata may be large."""
MOST_RANGES = 20_000
"""Of one map: batches of thousands of partitions are shown a few at a time."""


def shown(error: TidegateError | None) -> dict[str, str] | None:
    """An error as pages show it."""
    return None if error is None else {"message": error.message, "fix": error.fix}


class Source:
    """Where views come from."""

    def __init__(self) -> None:
        self._kafka = server.Kafka()
        self._table = IcebergReader()
        self._logs = Answers[Watermarks](LOG_S)
        self._lags = Answers[list[PartitionLag]](LAG_S)
        self._receipts = Answers[list[Receipt]](TABLE_S)

    def pipelines(self, dag_ids: Sequence[str]) -> dict[str, tuple[Declared, bool]]:
        """Those of these DAGs that are pipelines', each with whether it is paused."""
        return server.pipelines(dag_ids)

    def overviews(self, of: Mapping[str, tuple[Declared, bool]]) -> list[dict[str, Any]]:
        """Pipelines at a glance, those that need attention first. Brokers and tables are not asked."""
        views = [
            overview(
                Ledger(DatabaseStore(), declared.pipeline),
                table=declared.table,
                paused=paused,
                interval_s=declared.interval_s,
                runs=server.runs(dag_id),
            )
            for dag_id, (declared, paused) in of.items()
        ]
        return [view.to_json() for view in by_trouble(views)]

    def lag(self, of: Declared) -> dict[str, Any]:
        """The lag, the newest that is known; none before the first batch."""
        cursor = self._cursor(Ledger(DatabaseStore(), of.pipeline))
        if cursor is None:
            return {"at_ms": now_ms(), "lag": None, "error": None}

        def ask(brokers: AdminBrokers) -> list[PartitionLag]:
            return measure_lag(brokers, cursor.offsets, now_ms=now_ms(), isolation_level=of.isolation_level)

        answer = self._lags.get((of.pipeline, of.connection), lambda: self._kafka.ask(of.connection, ask))
        view = None if answer.value is None else LagView(of.pipeline, tuple(answer.value)).to_json()
        return {"at_ms": answer.at_ms, "lag": view, "error": shown(answer.error)}

    def range_map(
        self, of: Declared, *, batches: int, before: int | None, columns: int, limit: int, skip: int
    ) -> dict[str, Any]:
        """The range map of some batches: the newest `batches` of those before `before`; of the log as far as it is known."""
        ledger, faults = Ledger(DatabaseStore(), of.pipeline), list[str]()
        listing = ledger.listing()
        try:
            cursor = self._cursor(ledger, listing) or Cursor(of.pipeline)
        except StateCorrupt as error:
            cursor = Cursor(of.pipeline)
            faults.append(str(error))
        receipts = self._receipts_of(of)
        seqs = {key.seq for key in listing.ranges} | {r.load.seq for r in receipts.value or () if r.load.replay is None}
        most = max(10, min(batches, MOST_RANGES // max(1, len(cursor.offsets))))
        chosen = {*sorted(seq for seq in seqs if before is None or seq < before)[-most:]}
        saved = self._saved(of.pipeline, listing, chosen, faults)
        loaded = [r for r in receipts.value or () if r.load.replay is None and r.load.seq in chosen]
        log = self._log(of, cursor)
        view = range_map(
            of.pipeline,
            entries(saved, loaded, cursor),
            cursor,
            log.value,
            columns=columns,
            limit=limit,
            skip=skip,
            lost=[r for each in saved for r in each.skipped],
        )
        return {
            **view.to_json(),
            "first_seq": min(chosen, default=None),
            "last_seq": max(chosen, default=None),
            "transforms": sorted({r.load.transform for r in loaded}),
            "faults": faults,
            "error": shown(log.error or receipts.error),
        }

    def batch(self, of: Declared, *, seq: int | None = None, run_id: str | None = None) -> dict[str, Any]:
        """The batch of that number, or the one that a run saved; `error` is why its loads are not known."""
        ledger = Ledger(DatabaseStore(), of.pipeline)
        listing = ledger.listing()
        of_seq = (key for key in listing.ranges if key.seq == seq)
        key = next(of_seq, None) if run_id is None else listing.of_run(run_id)
        if key is None:
            return {"batch": None, "error": None}
        saved = ledger.saved_range(key.key)
        receipts = self._receipts_of(of)
        who = next(map(started_by, server.runs(of.pipeline, [saved.run_id])), None)
        cursor = self._cursor(ledger, listing) or Cursor(of.pipeline)
        view = batch_view(saved, cursor, receipts.value or (), who)
        return {"batch": view.to_json(), "error": shown(receipts.error)}

    def trend(self, of: Declared) -> list[dict[str, Any]]:
        """What the last batches took, the oldest first."""
        cursor = self._cursor(Ledger(DatabaseStore(), of.pipeline))
        return [] if cursor is None else [timing_to_json(timing) for timing in cursor.timings]

    def _cursor(self, ledger: Ledger, listing: Listing | None = None) -> Cursor | None:
        return ledger.cursor() if (listing or ledger.listing()).has_cursor else None

    def _log(self, of: Declared, cursor: Cursor) -> Answer[Watermarks]:
        topics = sorted({tp.topic for tp in cursor.offsets})

        def ask(brokers: AdminBrokers) -> Watermarks:
            return brokers.watermarks(topics, isolation_level=of.isolation_level)

        return self._logs.get((of.pipeline, *topics), lambda: self._kafka.ask(of.connection, ask))

    def _receipts_of(self, of: Declared) -> Answer[list[Receipt]]:
        # not those of expired snapshots: the table that keeps them may be large, and pages ask again and again
        return self._receipts.get((of.table, of.pipeline), lambda: self._table.history(of.table).receipts(of.pipeline))

    def _saved(self, pipeline: str, listing: Listing, chosen: set[int], faults: list[str]) -> list[SavedRange]:
        """The saved ranges of some batches, by few questions; those that cannot be read become faults."""
        keys = [key.key for key in listing.ranges if key.seq in chosen]
        ledger = Ledger(_Held(DatabaseStore().values(keys)), pipeline)
        saved = []
        for key in keys:
            try:
                saved.append(ledger.saved_range(key))
            except StateCorrupt as error:
                faults.append(str(error))
            except KeyError:
                continue  # it was deleted meanwhile
        return saved


class _Held(DatabaseStore):
    """Values that were read at once."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def get(self, key: str) -> str:
        """The text of a key that was read."""
        return self._values[key]
