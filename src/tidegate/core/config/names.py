"""Which names pipelines, receivers, topics, tables and transforms may have, and which topics a pattern matches.

What is accepted here is accepted by Airflow, Kafka and their databases: one file that they refuse must not stop the others.

A pattern may only be used if its match against a topic's name ends soon. Python's engine tries one way after another to match a
name. The number of ways is bounded here from the expression itself, in bits: a repetition has as many choices as the name has
characters, an alternation as many as it has branches, and what is repeated chooses anew each time. So `(a+)+` is refused, and
`orders-.*` is not.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from tidegate.core.config.sinks import ICEBERG
from tidegate.core.model.errors import ConfigError

TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
PIPELINE = re.compile(r"[a-z][a-z0-9_]{0,59}")
TABLE = ICEBERG.table
TRANSFORM = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*")

# The most characters that Airflow's columns and Kafka's protocol take.
LONGEST_GROUP = 255
LONGEST_ID = 250  # of an Airflow connection, and of a module with its function
LONGEST_POOL = 256
LONGEST_TABLE = LONGEST_POOL - len("tidegate_")
LONGEST_TAG = 100

PIPELINES = "pipelines"
"""The folder of the files of pipelines, by which errors name them too."""
REPLAY_DAG = "__replay"
"""The suffix of the DAG that replays a pipeline."""
RECEIVE_DAG = "__receive"
"""The suffix of the DAG that runs a receiver."""
MAINTAIN_DAG = "__maintain"
"""The suffix of the DAG that maintains a pipeline's table."""
DOCTOR_DAG = "tidegate__doctor__"
"""The prefix of the DAG that examines an installation where its tasks run. Behind it is the first pipeline of a folder: other
folders of one Airflow have other pipelines."""
IDEMPOTENCY_KEY = "tidegate.idempotency_key"
"""The header of a record that tells it from a repeat of another one."""
DEFAULT_POOL = "default_pool"
"""The pool that Airflow itself makes; tasks are in it unless they name another one."""
QUARANTINE = "_quarantine"
"""The suffix of the table that holds what loads of a table have rejected."""
PARSED = "A new file is parsed within five minutes, or by `airflow dags reserialize`"
"""What to do where Airflow does not have a DAG yet."""
COMMITS_TABLE = "_commits"
"""The suffix of the table that keeps the commits of a table when their snapshots expire."""
CATCH_UP_RUN = "catch_up__"
"""The prefix of the ids of runs that another run has started, since it left records behind."""
BACKFILL = "backfill"
"""Airflow's type of the runs of a date backfill."""
BACKFILL_RUN = f"{BACKFILL}__"
"""The prefix of the ids that Airflow gives to such runs."""

# Airflow masks the value of a Variable whose key contains one of these (its `DEFAULT_SENSITIVE_FIELDS`, without those that
# contain another), and a pipeline's name is part of its keys.
MASKED_WORDS = (
    *("access_key", "api_key", "apikey", "auth_header", "authorization", "bearer", "connection_string", "dsn", "keyfile_dict"),
    *("passphrase", "passwd", "password", "private_key", "proxies", "proxy", "secret", "service_account", "service_key"),
    *("token", "webhook_url"),
)


def name_faults(name: str) -> list[str]:
    """What is wrong with the name of a pipeline or receiver, which is the name of its file; one sentence for each fault."""
    faults = []
    if not PIPELINE.fullmatch(name):
        faults.append("1 to 60 lower-case letters, digits and _, beginning with a letter")
    faults += [
        f'a name that does not end with "{suffix}", the suffix of the DAGs that {what}'
        for suffix, what in ((REPLAY_DAG, "replay"), (RECEIVE_DAG, "receive"), (MAINTAIN_DAG, "maintain tables"))
        if name.endswith(suffix)
    ]
    if name.startswith(DOCTOR_DAG):
        faults.append(f'a name that does not begin with "{DOCTOR_DAG}", as DAGs do that examine installations')
    faults += [
        f'a name without "{word}": Airflow masks Variables whose keys contain it' for word in MASKED_WORDS if word in name
    ]
    return [f'the file\'s name: expected {expected}; got "{name}"' for expected in faults]


INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})
"""Kafka knows its own topics by these names too (`org.apache.kafka.common.internals.Topic`)."""
WARM_UP_TOPIC = "__tidegate_warm_up"
"""The scratch topic of `tidegate up`, which lives for seconds: a pipeline that had read it would miss it."""
LONGEST_NAME = 249
"""Of a Kafka topic."""
MOST_BITS = 28.0
"""Four unbounded repetitions one after the other, which share the name's characters; a few seconds in the worst case."""


def topic_filter(pattern: str, exclude: Sequence[str] = ()) -> Callable[[Iterable[str]], list[str]]:
    """What picks, of the topics of a cluster, those whose whole name matches `pattern` and none of `exclude`, sorted.

    Kafka's internal topics never match, nor does the topic of a warm-up.

    Raises ConfigError: a pattern is not a regular expression.
    """
    hidden = INTERNAL_TOPICS | {WARM_UP_TOPIC}
    included, excluded = _regex(pattern, "pattern"), [_regex(text, "exclude") for text in exclude]

    def pick(topics: Iterable[str]) -> list[str]:
        names = [name for name in topics if name not in hidden and included.fullmatch(name)]
        return sorted(name for name in names if not any(regex.fullmatch(name) for regex in excluded))

    return pick


@lru_cache(4096)
def matches(topic: str, pattern: str, exclude: tuple[str, ...] = ()) -> bool:
    """Whether `topic_filter` picks the topic; kept, since a match may take its time and is asked for of each partition."""
    return bool(topic_filter(pattern, exclude)([topic]))


def _regex(text: str, field: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(
            f"{field}: {text!r} is not a regular expression: {error}",
            fix=r'Write one that matches whole topic names, for example "orders\\..*"',
            field=field,
        ) from error


def ends_soon(pattern: str) -> bool:
    """Whether the pattern is a regular expression, and its match against any topic's name ends."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
            # the only way to the tree of an expression; the public module of it is deprecated
            tree = re._parser.parse(pattern)  # type: ignore[attr-defined]  # noqa: SLF001
        return bool(_bits(tree) <= MOST_BITS)
    except (re.error, OverflowError, RecursionError):
        return False


def _bits(items: Iterable[tuple[Any, Any]]) -> float:
    """The choices of a sequence, as a power of two."""
    return sum(_choices(str(kind), argument) for kind, argument in items)


def _choices(kind: str, argument: Any) -> float:
    if kind in {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}:
        least, most, body = argument
        times: int = min(most, LONGEST_NAME)
        lengths = times - min(least, times) + 1
        shared = 1.0 if times == LONGEST_NAME and lengths > 2 else 0.0
        return math.log2(lengths) - shared + times * _bits(body)
    if kind == "BRANCH":
        return math.log2(len(argument[1])) + max(_bits(branch) for branch in argument[1])
    if kind == "GROUPREF_EXISTS":
        return max(_bits(branch or ()) for branch in argument[1:])
    if kind in {"SUBPATTERN", "ASSERT", "ASSERT_NOT"}:
        return _bits(argument[-1])
    return _bits(argument) if kind == "ATOMIC_GROUP" else 0.0
