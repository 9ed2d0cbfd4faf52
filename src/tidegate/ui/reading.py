"""The views of a pipeline, read inside Airflow's API server, as far as database, brokers and table answer.

Saved state is read anew each time. Brokers and tables are asked every few seconds at most, whoever looks, and nobody waits long
for them. What does not answer is left out of a view and named in its `error`: the rest is shown.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

from airflow.api.common.airflow_health import get_airflow_health
from airflow.configuration import conf

from tidegate.airflow.declared import Declared
from tidegate.airflow.operators.plan import DRY_RUN, REPORT
from tidegate.airflow.operators.tasks import WAITING
from tidegate.core.audit.lag import LagView, PartitionLag, aged, measure_lag, total_lag
from tidegate.core.audit.quarantine import QuarantineView, held_of, view_quarantine
from tidegate.core.audit.readable import Readable
from tidegate.core.config.names import BACKFILL
from tidegate.core.model.errors import (
    KafkaAuthFailed,
    OffsetsOutOfRange,
    PartitionsDeleted,
    StateCorrupt,
    StateNewer,
    TableLost,
    TidegateError,
    TopicNotFound,
)
from tidegate.core.model.watermarks import Watermarks
from tidegate.core.planning.admission import refused_by_table
from tidegate.core.planning.run_notes import failed_runs
from tidegate.core.state.cursor import Cursor
from tidegate.core.state.ledger import Ledger, Listing, cursor_key
from tidegate.core.state.saved_range import SavedRange
from tidegate.kafka.brokers import AdminBrokers
from tidegate.sinks import reader_of
from tidegate.ui.caches import Answer, Answers, Kafka, Landings, Plans
from tidegate.ui.database import (
    NEWEST,
    Dags,
    DatabaseStore,
    Held,
    KnownDag,
    handed_on,
    receiver_slots,
    runs,
    shadow_of,
    slots,
    tasks,
)
from tidegate.views.broken import MOST, Broken, broken_of
from tidegate.views.entries import Loads, entries, loaded_last, started_by
from tidegate.views.history import forecast, points, sampled
from tidegate.views.overview import PipelineRow, active_run, by_trouble, crowding, dead_servers, pipeline_row, waits_for
from tidegate.views.pages import BatchAnswer, BrokenAnswer, HistoryAnswer, LagAnswer, MapAnswer, QuarantineAnswer, RunAnswer
from tidegate.views.range_map import Mark, offset_map, partition_rows, span, time_map
from tidegate.views.runs import Batch, LoadFigures, ReplayRun, RunMark, batch_of, replay_run, run_marks, without_a_batch
from tidegate.waiting import now_ms

LOG_S, LAG_S, TABLE_S = 3.0, 5.0, 15.0
"""Seconds that answers are kept: the log's ends, what changes with time (lag, Airflow's servers), and the table's commits."""
SHADOW_S = 60.0
"""The same for what secrets backends have, which may be far away."""
WAIT_S = 0.3
"""How long a page waits for brokers, and as long again for a table."""
MOST_RANGES = 20_000
"""Of one map: batches of thousands of partitions are shown a few at a time."""
REASONS, MOST_REJECTED = 20, 100_000
"""Reasons of a quarantine that are shown, and the most records that it may hold to be read here."""
SPARKLINE = 30
"""Batches whose lag is shown beside a pipeline."""
GONE = (
    "Airflow finds no valid file of it. Run `tidegate check`, which says what is wrong with it. If it was removed or renamed, "
    "run `tidegate remove {0}` or `tidegate rename {0} NAME`"
)
"""Of a pipeline that has saved something. Airflow keeps import errors of its files for some seconds of each half minute only:
it deletes those of files that are no Python."""
TYPED = "TIDEGATE_COMMAND_PREFIX"
"""What people type before a command, where `tidegate` runs in a container."""
EMBEDDED = "TIDEGATE_STATE_DIR"
"""Set in the embedded platform, where `airflow` alone is another one: `tidegate airflow` finds it."""
OPENING = re.compile(r"`(?=(tidegate|airflow) )")
"""Where a command begins, in a sentence."""
REFUSALS = (KafkaAuthFailed, OffsetsOutOfRange, TopicNotFound)
"""What brokers answer to the next run, too. Other errors may be of this server, which may lack a connection or a file."""
RETIRED = (PartitionsDeleted, TopicNotFound)
"""Of those, what a pipeline that retires what is gone goes on without."""
NOTHING = Listing(has_cursor=False, ranges=())
Lags = list[PartitionLag]


def shown(error: TidegateError | None) -> str | None:
    """An error as pages show it, with its fix."""
    return None if error is None else str(error)


def typed(command: str | None) -> str | None:
    """A command as whoever looks at a page types it."""
    return None if command is None else _before(command.partition(" ")[0]) + command


def _before(program: str) -> str:
    """What is typed before a command of `tidegate` or `airflow`, with a space at its end."""
    own = "tidegate" if program == "airflow" and EMBEDDED in os.environ else None
    return "".join(f"{word} " for word in (os.environ.get(TYPED), own) if word)


def all_typed(text: str, *, is_json: bool = False) -> str:
    """A text, or JSON, with each command between backticks as whoever looks at a page types it."""
    before = {program: f"`{_before(program)}" for program in ("tidegate", "airflow")}
    return OPENING.sub(lambda found: json.dumps(before[found[1]])[1:-1] if is_json else before[found[1]], text)


class Frame(NamedTuple):
    """What a map has room for: blocks of a part of a row, one in `columns`, and which of the partitions."""

    columns: int
    page: slice


class PageSource:
    """Where views come from."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self.dags = Dags()
        self._kafka = Kafka()
        self._plans = Plans()
        self._landings = Landings()
        self._logs = Answers[Watermarks]("a broker", LOG_S, wait_s=wait_s, now_ms=now_ms)
        self._lags = Answers[Lags]("a broker", LAG_S, wait_s=wait_s, now_ms=now_ms)
        self._loads = Answers[Loads]("the catalog of the table", TABLE_S, wait_s=wait_s, now_ms=now_ms)
        self._quarantines = Answers[QuarantineView]("the catalog of the table", TABLE_S, wait_s=wait_s, now_ms=now_ms)
        self._broken = Answers[Broken]("the catalog of the table", TABLE_S, wait_s=wait_s, now_ms=now_ms)
        self._shadows = Answers[str | None]("a secrets backend", SHADOW_S, wait_s=wait_s, now_ms=now_ms)
        self._airflow = Answers[tuple[str, ...]]("Airflow's database", LAG_S, wait_s=wait_s, now_ms=now_ms)

    def close(self) -> None:
        """Close the connections to brokers."""
        self._kafka.close()

    def airflow(self) -> tuple[str, ...]:
        """What keeps Airflow from running tasks, asked once for all pages that are open."""
        return self._airflow.get("airflow", _troubles).value or ()

    def pipelines(self, of: Mapping[str, KnownDag], file_errors: Mapping[str, str]) -> tuple[PipelineRow, ...]:
        """Pipelines at a glance, those that need attention first.

        Of those that Airflow does not find any more, the ones that have saved something, or whose file cannot be read. Files of
        other pipelines that cannot be read are shown, too.
        """
        states = {name: _state(name) for name in of}
        of = {name: each for name, each in of.items() if each.current or name in file_errors or states[name].listing != NOTHING}
        asked = {
            (name, found.declared.connection): ask
            for name, found in of.items()
            if (ask := self._lag_of(found.declared, states[name].known_cursor)) is not None
        }
        lags = {name: answer for (name, _), answer in self._lags.get_all(asked).items()}
        self._find_shadows({name: states[name] for name in of})
        rows = [
            self._pipeline(found, states[name], runs(name), lags.get(name), file_errors.get(name)) for name, found in of.items()
        ]
        others = ((name, why) for name, why in file_errors.items() if name not in of)
        return by_trouble([*rows, *(_row(Cursor(pipeline=name, seq=0), file_error=why) for name, why in others)])

    def _find_shadows(self, states: Mapping[str, Readable]) -> None:
        """Name secrets backends that answer in the place of a cursor among what cannot be read of the saved state."""
        for name, shadow in self._shadows.get_all({name: partial(shadow_of, cursor_key(name)) for name in states}).items():
            states[name].faults += filter(None, [shadow.value])

    def _pipeline(
        self,
        of: KnownDag,
        state: Readable,
        newest: Iterable[Mapping[str, Any]],
        lag: Answer[Lags] | None,
        file_error: str | None,
    ) -> PipelineRow:
        declared = of.declared
        # the schedule does not wait for a backfill
        ran = [run for run in newest if run["run_type"] != BACKFILL]
        active = active_run(ran)
        plans, _ = self._plans.of(declared.pipeline, state.listing, most=SPARKLINE)
        behind: dict[str, Any] = {} if lag is None else {"lag_error": shown(lag.error), "lag_soon": lag.soon}
        goes_on = RETIRED if declared.retires else ()
        if lag is not None and isinstance(lag.error, REFUSALS) and not isinstance(lag.error, goes_on):
            behind["refusal"] = behind["lag_error"]
        elif (refusal := self._refused_by_table(declared, state, ran)) is not None:
            behind["refusal"] = shown(refusal)
        if lag is not None and lag.value is not None:
            behind |= {"lag": aged(total_lag(lag.value), (now_ms() - lag.at_ms) / 1000), "lag_at_ms": lag.at_ms}
        return _row(
            state.cursor,
            ran,
            state.pending,  # what of this cannot be read is among the faults below
            table=declared.table,
            interval_s=declared.interval_s,
            paused=of.paused,
            faults=tuple(state.faults),
            lag_points=tuple(plan.lag for plan in reversed(plans) if plan.lag is not None),
            waiting=None if active is None else self._waiting(declared, active.run_id),
            file_error=file_error or (None if of.current else GONE.format(shlex.quote(declared.pipeline))),
            **behind,
        )

    def _refused_by_table(self, of: Declared, state: Readable, ran: Iterable[Mapping[str, Any]]) -> TidegateError | None:
        """Why the table will refuse the next plan, by the newest read of its commits for any page: the list asks no catalog.

        It holds until another read, or a plan after it that believed the table. An operator may have accepted that it is lost.
        """
        read = self._loads.known((of.table, of.pipeline))
        is_over = any(run["state"] == "success" and run["since_ms"] > read.at_ms for run in ran)
        refusal = None if read.value is None or is_over else read.value.refusal
        is_accepted = isinstance(refusal, TableLost) and state.accepted is not None and state.accepted.creates
        return None if is_accepted else refusal

    @staticmethod
    def _waiting(of: Declared, run_id: str) -> str | None:
        """What an active run waits for."""
        found = tasks(of.pipeline, run_id)
        names = sorted({task.name for task in found if task.state == "running"})
        away = handed_on(of.pipeline, [run_id], WAITING, tasks=names) if names else {}
        said = {task_id: str(text) for (_, task_id, _), text in away.items() if text}
        of_pool = {of.pool: of.slots}
        return waits_for(
            [replace(task, away=said.get(task.name)) for task in found],
            lambda pool: replace(slots(pool), needed=of_pool.get(pool)),
            now_ms=now_ms(),
        )

    def lag(self, of: Declared) -> LagAnswer:
        """The lag, the newest that is known; none before the first batch."""
        ask = self._lag_of(of, _state(of.pipeline).known_cursor)
        if ask is None:
            return LagAnswer(at_ms=now_ms())
        answer, view = self._lags.get((of.pipeline, of.connection), ask), None
        if answer.value is not None:
            view = LagView(pipeline=of.pipeline, partitions=tuple(answer.value), total=total_lag(answer.value))
        return LagAnswer(lag=view, **_heard(answer) | {"at_ms": answer.at_ms})

    def _lag_of(self, of: Declared, cursor: Cursor | None) -> Callable[[], Lags] | None:
        """Asks the brokers for the lag; None where there is nothing to ask for."""
        if cursor is None:
            return None

        def ask(brokers: AdminBrokers) -> Lags:
            return measure_lag(
                brokers, cursor.at.offsets, now_ms=now_ms(), isolation_level=of.isolation_level, assign=of.assign
            )

        return lambda: self._kafka.ask(of.connection, ask)

    def range_map(
        self,
        known: KnownDag,
        frame: Frame,
        *,
        batches: int,
        before: int | None,
        axis: Literal["offset", "time"],
        replays: bool,
        file_error: str | None,
    ) -> MapAnswer:
        """The range map of a page of partitions, and the last runs; of the log as far as it is known.

        It has the newest `batches` of those before `before`. `replays`: whether to show runs of replays too.
        """
        of = known.declared
        state = _state(of.pipeline)
        cursor, listing = state.cursor, state.listing
        ask = self._lag_of(of, state.known_cursor)
        # a map is shown without it: of thousands of partitions it takes seconds
        behind = None if ask is None else self._lags.get((of.pipeline, of.connection), ask, waits=False)
        log, loads = self._log(of, cursor), self._loads_of(of, cursor)
        self._find_shadows({of.pipeline: state})
        seqs = {key.seq for key in listing.ranges} | (loads.value.batches if loads.value is not None else set())
        most = max(10, min(batches, MOST_RANGES // max(1, len(cursor.at.offsets))))
        chosen = {*sorted(seq for seq in seqs if before is None or seq < before)[-most:]}
        keys = [key for key in listing.ranges if key.seq in chosen]
        values = DatabaseStore().values([key.key for key in keys])
        # some may have been deleted meanwhile
        saved = state.ranges([key for key in keys if key.key in values], Ledger(Held(values), of.pipeline))
        rows = partition_rows(cursor, log.value)
        try:
            on_page = frozenset(row.topic_partition for row in rows[frame.page])
            loaded = [] if loads.value is None else loads.value.of_batches(chosen, on_page)
        except (StateCorrupt, StateNewer) as error:
            loaded = []
            state.faults.append(str(error))
        ran = entries(saved, (r for r in loaded if r.load.replay is None), cursor)
        by_version, marks = loaded_last(loaded, cursor.at.topic_ids), self._marks(of, saved)
        newest = {dag_id: runs(dag_id) for dag_id in [of.pipeline, *([of.replay_dag] if replays else [])]}
        away: Answer[Any] = log if log.error else loads
        times: tuple[int, int] | None = None
        if axis == "time":
            times = span(ran, until_ms := now_ms())
            drawn = time_map(rows[frame.page], ran, frame.columns, now_ms=until_ms, marks=marks)
        else:
            accepted = [r for each in saved for r in each.skipped]
            drawn = offset_map(rows[frame.page], ran, frame.columns, accepted=accepted, versions=by_version, marks=marks)
        return MapAnswer(
            pipeline=of.pipeline,
            axis=axis,
            span_ms=times,
            partitions=len(rows),
            row=self._pipeline(known, state, newest[of.pipeline], behind, file_error),
            rows=drawn,
            first_seq=min(chosen, default=None),
            last_seq=max(chosen, default=None),
            transforms=tuple(sorted({version for version, _ in by_version})),
            quarantine=of.quarantine,
            runs=self._last_runs(of, listing, newest),
            faults=tuple(state.faults),
            airflow=self.airflow(),
            error_at_ms=away.at_ms if away.value is not None else None,
            waiting_for=tuple(name for name, each in (("log", log), ("table", loads)) if each.soon and each.value is None),
            **_heard(log, loads, soon=behind is not None and behind.soon),
        )

    @staticmethod
    def _marks(of: Declared, saved: Iterable[SavedRange]) -> dict[int, frozenset[Mark]]:
        """What the loads of batches handed on that is worth seeing."""
        by_run = {each.load.run_id: each.load.seq for each in saved}
        found = _figures(of, list(by_run))
        return {by_run[run_id]: load.marks for run_id, load in found.items() if load.marks}

    def _last_runs(self, of: Declared, listing: Listing, ran: Mapping[str, list[dict[str, Any]]]) -> tuple[RunMark, ...]:
        """The last of these runs of a pipeline's DAGs: of its schedule, and of its replays."""
        keys = listing.of_runs(str(run["dag_run_id"]) for run in ran.get(of.pipeline, ()))
        records = {plan.seq: plan.records for plan in self._plans.of(of.pipeline, listing, most=NEWEST)[0]}
        batches = {run_id: (key.seq, records.get(key.seq)) for run_id, key in keys.items()}
        return run_marks(ran, batches, pipeline=of.pipeline, most=NEWEST)

    def batch(self, of: Declared, seq: int, *, replays: bool) -> BatchAnswer:
        """The batch of that number; `error` is why its loads are not known. `replays`: whether to show those of its offsets."""
        state = _state(of.pipeline)
        saved = _saved(state, seq)
        if saved is None:
            return BatchAnswer(at_ms=now_ms())
        run = next(iter(runs(of.pipeline, [saved.load.run_id])), None)
        loads = self._loads_of(of, state.cursor, run)
        batch = _batch(of, state, saved, run, loads.value, replays=replays)
        return BatchAnswer(batch=batch, **_heard(loads, faults=state.faults))

    def broken(self, of: Declared, seq: int) -> BrokenAnswer:
        """The first broken records of the batch of that number: the table is read for whoever asks, and nobody else."""
        saved = None if of.by_batch else _saved(_state(of.pipeline), seq)
        if saved is None:
            return BrokenAnswer(at_ms=now_ms())
        sink, ranges, tables = reader_of(of.sink), saved.load.nonempty, filter(None, (of.table, of.quarantine))

        def ask() -> Broken:
            return broken_of({table: sink.broken(table, ranges, most=MOST) for table in tables}, ranges, of.quarantine)

        found = self._broken.get((of.table, of.pipeline, seq), ask)
        view = found.value and replace(found.value, commands=tuple(map(str, map(typed, found.value.commands))))
        return BrokenAnswer(broken=view, **_heard(found) | {"at_ms": found.at_ms})

    def run(self, dag_id: str, of: Declared, run_id: str, *, replays: bool) -> RunAnswer:
        """What a run of one of the pipeline's DAGs read; `error` is why its loads are not known."""
        state = _state(of.pipeline)
        ran = next(iter(runs(dag_id, [run_id])), None)
        key = state.listing.of_run(run_id) if dag_id == of.pipeline else None
        # a page that needs no cursor does not read one
        loads = self._loads_of(of, None if key is None else state.cursor, ran)
        if key is not None:
            batch = _batch(of, state, state.ledger.saved_range(key.key), ran, loads.value, replays=replays)
            why = None if ran is None else failed_runs([ran]).get(run_id)
            return RunAnswer(kind="batch", batch=batch, reason=why, **_heard(loads, faults=state.faults))
        if ran is not None and (dag_id == of.replay_dag or ran["run_type"] == BACKFILL):
            return RunAnswer(kind="replay", replay=_replay(dag_id, state, ran, loads.value), **_heard(loads))
        states = {task.name: task.state for task in tasks(dag_id, run_id)}
        kind, reason = without_a_batch(ran, states.get("plan"))
        return RunAnswer(kind=kind, reason=reason, **_heard(loads))

    def history(self, known: KnownDag, *, hours: int, buckets: int) -> HistoryAnswer:
        """What the batches of the last hours read and took, how far behind they were, and what is to be expected of a schedule.

        `complete`: whether all saved ranges of that time are read; the rest comes with the next request.
        """
        of = known.declared
        state, until_ms = _state(of.pipeline), now_ms()
        from_ms = until_ms - hours * 3_600_000
        plans, complete = self._plans.of(of.pipeline, state.listing, from_ms=from_ms)
        loads = self._loads_of(of, state.cursor)
        landed, all_landed = self._landings.of(loads.value, {plan.seq for plan in plans}, from_ms=from_ms)
        ask = self._lag_of(of, state.known_cursor)
        behind = None if ask is None else self._lags.get((of.pipeline, of.connection), ask)
        ran = points(plans, landed, state.cursor)
        lag = None if behind is None or behind.value is None else total_lag(behind.value).records_behind
        complete = complete and all_landed
        return HistoryAnswer(
            from_ms=from_ms,
            until_ms=until_ms,
            points=sampled(ran, from_ms=from_ms, until_ms=until_ms, buckets=buckets),
            forecast=forecast(
                state.cursor,
                ran,
                interval_s=of.mean_interval_s if known.current and not known.paused else None,
                lag=lag,
                max_records=of.max_records,
                catch_up=of.catch_up,
            ),
            lag=lag,
            complete=complete,
            faults=tuple(state.faults),
            **_heard(loads, *([] if behind is None else [behind]), soon=not complete),
        )

    def quarantine(self, of: Declared) -> QuarantineAnswer:
        """Which records the pipeline has rejected, and why: the table is read for whoever asks, and nobody else."""
        table = of.quarantine
        if table is None:
            return QuarantineAnswer(at_ms=now_ms())

        def held(topics: frozenset[str]) -> Watermarks:
            return self._kafka.ask(of.connection, partial(held_of, topics, isolation_level=of.isolation_level))

        sink, cursor = reader_of(of.sink), _state(of.pipeline).known_cursor
        committed = {} if cursor is None else cursor.at.offsets
        read = partial(view_quarantine, of.pipeline, of.table, table, sink, held, reasons=REASONS, most=MOST_REJECTED)
        found = self._quarantines.get((of.pipeline, of.connection, table), lambda: read(committed=committed))
        view = found.value and replace(found.value, replay=typed(found.value.replay))
        return QuarantineAnswer(quarantine=view, **_heard(found) | {"at_ms": found.at_ms})

    def _log(self, of: Declared, cursor: Cursor) -> Answer[Watermarks]:
        topics = sorted({tp.topic for tp in cursor.at.offsets})

        def ask(brokers: AdminBrokers) -> Watermarks:
            return brokers.watermarks(topics, isolation_level=of.isolation_level).assigned(of.assign)

        return self._logs.get((of.pipeline, of.connection, *topics), lambda: self._kafka.ask(of.connection, ask))

    def _loads_of(self, of: Declared, cursor: Cursor | None, run: Mapping[str, Any] | None = None) -> Answer[Loads]:
        """The loads of a pipeline: those of a run that has ended are among them.

        Without a cursor to judge the table by, it is judged as before.
        """
        key = (of.table, of.pipeline)

        def ask() -> Loads:
            # not those of expired snapshots: the table that keeps them may be large, and pages ask again and again
            history, before = reader_of(of.sink).history(of.table), self._loads.known(key).value
            loads = Loads.of(history, of.pipeline)
            if cursor is None:
                return replace(loads, refusal=None if before is None else before.refusal)
            judged = refused_by_table(cursor, of.table, history, shared_with=of.shared_with, by_batch=of.by_batch)
            return replace(loads, refusal=judged)

        return self._loads.get(key, ask, after_ms=0 if run is None else run["ended_ms"])


def _state(pipeline: str) -> Readable:
    return Readable(Ledger(DatabaseStore(), pipeline))


def _saved(state: Readable, seq: int) -> SavedRange | None:
    """A saved range of the batch; None where none is kept."""
    key = next((key for key in state.listing.ranges if key.seq == seq), None)
    return None if key is None else state.ledger.saved_range(key.key)


def _row(*read: Any, **known: Any) -> PipelineRow:
    row = pipeline_row(*read, **known)
    return replace(row, command=typed(row.command))


def _batch(
    of: Declared, state: Readable, saved: SavedRange, run: Mapping[str, Any] | None, loads: Loads | None, *, replays: bool
) -> Batch:
    who = {} if run is None else {saved.load.run_id: started_by(run)}
    load = _figures(of, [saved.load.run_id]).get(saved.load.run_id)
    found = () if loads is None else loads.of_batches({saved.load.seq})
    return batch_of(saved, state.cursor, [r for r in found if replays or r.load.replay is None], who, load)


def _replay(dag_id: str, state: Readable, run: Mapping[str, Any], loads: Loads | None) -> ReplayRun:
    run_id = str(run["dag_run_id"])
    key = state.listing.replay_of_run(run_id)

    def said(key: str, *tasks: str) -> Any:
        return next(iter(handed_on(dag_id, [run_id], key, tasks=tasks).values()), None)

    dry = said(DRY_RUN, "plan")
    report = _mapping(dry if dry is not None else said(REPORT, "plan"))
    verdict = _mapping(said("return_value", "verify", "commit"))
    saved = None if key is None else state.ledger.saved_replay(key.key)
    landed = () if saved is None or loads is None else loads.of_replay(saved.name)
    return replay_run(run, state.ledger.pipeline, saved, landed=landed, report=report, verdict=verdict, dry_run=dry is not None)


def _figures(of: Declared, run_ids: list[str]) -> dict[str, LoadFigures]:
    """What the loads of runs handed on, by run id."""
    found = handed_on(of.pipeline, run_ids, "return_value", tasks=("load",))
    figures = {run_id: LoadFigures.of(value) for (run_id, _, _), value in found.items()}
    return {run_id: load for run_id, load in figures.items() if load is not None}


def _mapping(value: Any) -> Mapping[str, Any] | None:
    """What a task handed on, where it is what ours do."""
    return value if isinstance(value, Mapping) else None


def _troubles() -> tuple[str, ...]:
    """What keeps Airflow from running tasks: servers that do not run, and receivers that hold the slots of pipelines."""
    crowded = crowding(
        receiver_slots(), held=lambda pool: slots(pool).total, parallelism=lambda: conf.getint("core", "parallelism")
    )
    return (*dead_servers(get_airflow_health()), *crowded)


def _heard(*answers: Answer[Any], soon: bool = False, faults: Iterable[str] = ()) -> dict[str, Any]:
    """What is in a `PageAnswer`: the error has all of the faults, and of the answers' errors, each once."""
    errors = [*faults, *(str(answer.error) for answer in answers if answer.error is not None)]
    said = ". ".join(dict.fromkeys(each.rstrip(".") for each in errors)) or None
    return {
        "at_ms": now_ms(),
        "error": said and all_typed(said),  # also where values of records are beside it
        "soon": soon or any(answer.soon for answer in answers),
    }
