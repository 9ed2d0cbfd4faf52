"""What a replay is asked: by offsets, times, batches, a run, or the versions that loaded the rows; and how it is to be done.

Only what can be judged without looking at the schedule is judged here; `tidegate.core.replay.run` checks the rest against it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidegate.core.config.names import TABLE, TRANSFORM
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.counts import check_limits
from tidegate.core.model.errors import RequestError, did_you_mean
from tidegate.core.model.times import epoch_ms, utc

BATCHES = re.compile(r"(\d+)(?:\.\.(\d+))?")
VERSIONS = re.compile(r"(?P<how><|=|!=)\s*(?P<version>\S+)")
HASH = re.compile(r"[0-9a-f]{12}")
NUMBERS = re.compile(r"\d+(\.\d+)*")
PARAMETERS = (
    *("offsets", "from_time", "until_time", "batches", "run", "versions"),
    *("dry_run", "chunk_size", "parallel", "table", "transform", "accept_loss"),
)
"""The parameters that a trigger of a replay may have."""
LINEAGE = "openlineage"
"""Airflow's TriggerDagRunOperator adds it to the parameters of a run, where OpenLineage is on."""


@dataclass(frozen=True, order=True)
class Asked:
    """A range as somebody asks for it, not checked yet.

    None means every topic, every partition, from the first retained offset, up to the cursor.
    """

    topic: str | None
    partition: int | None
    from_offset: int | None
    until_offset: int | None


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """What a replay is asked: exactly one of `offsets`, `times`, `batches`, `run_id` and `versions`.

    Raises RequestError: not exactly one of them, or one that can never be.

    Args:
        offsets: ranges, half-open.
        times: records from the first one at or after a time on, up to the first one at or after another (epoch ms). None: from
            the first retained record on, or up to the cursor.
        batches: the first and the last batch, both inclusive.
        run_id: the DAG run whose batch it is.
        versions: what loaded the rows: `<2` (a version below it), `=2` (exactly it), `!=2` (any other).
        chunk_size: offsets of one chunk, about. parallel: chunks at the same time at most.
        table: where to, instead of the pipeline's own. transform: by what, instead of the pipeline's own.
        accept_loss: leave out what is no longer retained, instead of refusing.
    """

    offsets: tuple[Asked, ...] = ()
    times: tuple[int | None, int | None] | None = None
    batches: tuple[int, int] | None = None
    run_id: str | None = None
    versions: str | None = None
    chunk_size: int | None = None
    parallel: int | None = None
    table: str | None = None
    transform: str | None = None
    accept_loss: bool = False

    def __post_init__(self) -> None:
        given = bool(self.offsets) + sum(one is not None for one in (self.times, self.batches, self.run_id, self.versions))
        if given != 1:
            raise RequestError(
                f"pass exactly one of offsets, times, batches, a run and versions, got {given or 'none'}",
                fix='For example offsets {"flights": {"0": [1000, 2000]}} (--from, --until), or batches 12..18 (--batch)',
            )
        from_ms, until_ms = self.times or (None, None)
        if from_ms is not None and until_ms is not None and until_ms <= from_ms:
            raise RequestError(
                f"the times are {'equal' if until_ms == from_ms else 'reversed'}: "
                f"from {utc(from_ms)} until {utc(until_ms)} holds no record",
                fix="Give an end after the start",
            )
        check_limits({"chunk_size": self.chunk_size, "parallel": self.parallel})
        for name, pattern, example in (
            ("table", TABLE, "lake.trial.flights"),
            ("transform", TRANSFORM, "transforms.flights:flights"),
        ):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and pattern.fullmatch(value)):
                raise RequestError(f"{name}: {value!r} is not a name like {example}")
        if self.versions is not None:
            version_filter(self.versions)

    @property
    def digest(self) -> str:
        """8 hex digits of what is replayed, into what, by what; how many at once does not change that."""
        words = {name: value for name, value in self.to_json().items() if name != "parallel"}
        return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()[:8]

    def to_json(self) -> dict[str, Any]:
        """What is asked, JSON-ready; what is not asked is left out."""
        words = asdict(self)
        words |= zip(("from_ms", "until_ms"), words.pop("times") or (), strict=False)
        asked = {name: value for name, value in words.items() if value is not None and value is not False and value != ()}
        plain: dict[str, Any] = json.loads(json.dumps(asked))
        return plain

    @staticmethod
    def from_params(params: Mapping[str, Any]) -> ReplayRequest:
        """The request in a trigger's parameters (`tidegate.airflow.replay_form`); those that are empty do not count.

        Raises RequestError: a parameter is unknown or cannot be read, or the request cannot be.
        """
        check_known(params, PARAMETERS)
        given = {name: value for name, value in params.items() if value not in (None, "", {}, [])}

        def read(name: str, how: Callable[[Any], Any], example: str) -> Any:
            if name not in given:
                return None
            try:
                return how(given[name])
            except (ValueError, TypeError, AttributeError) as error:
                raise RequestError(
                    f"the parameter `{name}` cannot be read: {given[name]!r}", fix=f"Write it like {example}"
                ) from error

        times = read("from_time", epoch_ms, "2013-03-01T00:00:00Z"), read("until_time", epoch_ms, "2013-03-02T00:00:00Z")
        return ReplayRequest(
            offsets=read("offsets", _asked, '{"flights": {"0": [1000, 2000]}}') or (),
            times=None if times == (None, None) else times,
            batches=read("batches", _batches, "12 or 12..18"),
            run_id=given.get("run"),
            accept_loss=bool(given.get("accept_loss")),
            **{name: given.get(name) for name in ("versions", "chunk_size", "parallel", "table", "transform")},
        )


def check_permitted(pipeline: Pipeline, table: str | None, transform: str | None) -> None:
    """Refuse a table or a transform that the pipeline's file does not allow for replays; None is the pipeline's own.

    Whoever may trigger a replay is not thereby allowed to write any table, or to run any code. Raises RequestError: the file
    does not allow it.
    """
    file = f"{pipeline.name}.yaml"
    if table is not None and not pipeline.writes(table):
        raise RequestError(
            f"a replay of {pipeline.name} may not write into table {table}",
            fix=f"Use {pipeline.sink.table} or a table named {pipeline.trials}…, or add it to replay.tables in {file}",
        )
    if transform is not None and transform not in (pipeline.transform, *pipeline.replay.transforms):
        raise RequestError(
            f"a replay of {pipeline.name} may not use transform {transform}",
            fix=f"Use {pipeline.transform}, or add it to replay.transforms in {file}",
        )


def check_known(params: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse parameters that nothing reads: a misspelt `dry_run` would load.

    Raises RequestError: there is one; the message names the closest known one.
    """
    unknown = [name for name in params if name not in (*known, LINEAGE)]
    if unknown:
        names = ", ".join(f"`{name}`" for name in unknown)
        raise RequestError(
            f"there is no parameter {names}{did_you_mean(unknown[0], known)}", fix=f"The parameters are {', '.join(known)}"
        )


def _asked(value: Any) -> tuple[Asked, ...]:
    """`[from, until]` for all, `{topic: [from, until]}`, `{topic: {partition: [from, until]}}`, or lists of such pairs."""
    if isinstance(value, list):
        return tuple(Asked(None, None, *pair) for pair in _pairs(value))
    asked: list[Asked] = []
    for topic, inner in value.items():
        by_partition = {None: inner} if isinstance(inner, list) else {int(p): ranges for p, ranges in inner.items()}
        asked += [Asked(topic, p, *pair) for p, ranges in by_partition.items() for pair in _pairs(ranges)]
    return tuple(asked)


def _pairs(value: Any) -> list[tuple[int | None, int | None]]:
    pairs = value if value and all(isinstance(v, list) for v in value) else [value]
    for pair in pairs:
        if len(pair) != 2 or any(v is not None and (isinstance(v, bool) or not isinstance(v, int)) for v in pair):
            raise ValueError(pair)
    return [(first, last) for first, last in pairs]


def _batches(value: Any) -> tuple[int, int]:
    match = BATCHES.fullmatch(str(value).strip())
    if match is None:
        raise ValueError(value)
    return int(match[1]), int(match[2] or match[1])


def version_filter(text: str) -> Callable[[str], bool]:
    """Whether a receipt's transform (`module:function@version`) is one of those that are asked for.

    Raises RequestError: the text cannot be read, or asks what is below a hash.
    """
    match = VERSIONS.fullmatch(text.strip())
    if match is None:
        raise RequestError(f"versions: {text!r} cannot be read", fix="Write it like <2, =1.4 or !=3f9a0c12b7de")
    how, asked_version = match["how"], match["version"]
    if how == "<" and _numbers(asked_version) is None:
        raise RequestError(
            f"versions: {asked_version} cannot be ordered",
            fix=f"Hashes have no order: write ={asked_version} or !={asked_version}",
        )

    def wants(identity: str) -> bool:
        version = identity.rpartition("@")[2]
        if how != "<":
            return (version == asked_version) is (how == "=")
        number = _numbers(version)  # a hash is from before versions were declared
        return number is None or number < (_numbers(asked_version) or ())

    return wants


def _numbers(version: str) -> tuple[int, ...] | None:
    if HASH.fullmatch(version) or not NUMBERS.fullmatch(version):
        return None
    return tuple(map(int, version.split(".")))
