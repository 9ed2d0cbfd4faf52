"""Tidegate: Kafka offset ranges as an orchestrated, replayable schedule.

What is listed in `__all__` is the public API. Each name is imported when it is first used, so `import tidegate` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.airflow.dags import build_dags
    from tidegate.airflow.store import VariableStore
    from tidegate.core.config.pipeline import Pipeline
    from tidegate.core.model.errors import TidegateError
    from tidegate.core.model.ranges import OffsetRange, TopicPartition, merged
    from tidegate.core.model.splitting import split_ranges
    from tidegate.core.rates import BatchTiming, PidRateEstimator, max_messages_per_partition, share_limit
    from tidegate.core.rates.policies import make_rate_policy
    from tidegate.core.rates.policy import RatePolicy
    from tidegate.core.state.ledger import Ledger
    from tidegate.core.state.ports import Brokers, JobRunner, SinkReader, StateStore
    from tidegate.formats.columns import header, reject
    from tidegate.formats.json import parse_json
    from tidegate.sinks.port import SinkWriter
    from tidegate_receivers.rules.limits import RateLimiter, WatermarkThrottle
    from tidegate_receivers.rules.placement import Tracked, Worker, reschedule_receiver, schedule_receivers

__version__ = "0.1.0"

__all__ = [
    "BatchTiming",
    "Brokers",
    "JobRunner",
    "Ledger",
    "OffsetRange",
    "PidRateEstimator",
    "Pipeline",
    "RateLimiter",
    "RatePolicy",
    "SinkReader",
    "SinkWriter",
    "StateStore",
    "TidegateError",
    "TopicPartition",
    "Tracked",
    "VariableStore",
    "WatermarkThrottle",
    "Worker",
    "build_dags",
    "header",
    "make_rate_policy",
    "max_messages_per_partition",
    "merged",
    "parse_json",
    "reject",
    "reschedule_receiver",
    "schedule_receivers",
    "share_limit",
    "split_ranges",
]

_PUBLIC = {
    "tidegate.airflow.dags": ("build_dags",),
    "tidegate.airflow.store": ("VariableStore",),
    "tidegate.core.config.pipeline": ("Pipeline",),
    "tidegate.core.model.errors": ("TidegateError",),
    "tidegate.core.model.ranges": ("OffsetRange", "TopicPartition", "merged"),
    "tidegate.core.model.splitting": ("split_ranges",),
    "tidegate.core.rates": ("BatchTiming", "PidRateEstimator", "max_messages_per_partition", "share_limit"),
    "tidegate.core.rates.policies": ("make_rate_policy",),
    "tidegate.core.rates.policy": ("RatePolicy",),
    "tidegate.core.state.ledger": ("Ledger",),
    "tidegate.core.state.ports": ("Brokers", "JobRunner", "SinkReader", "StateStore"),
    "tidegate.formats.columns": ("header", "reject"),
    "tidegate.formats.json": ("parse_json",),
    "tidegate.sinks.port": ("SinkWriter",),
    "tidegate_receivers.rules.limits": ("RateLimiter", "WatermarkThrottle"),
    "tidegate_receivers.rules.placement": ("Tracked", "Worker", "reschedule_receiver", "schedule_receivers"),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
