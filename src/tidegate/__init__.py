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

_MODULES = {
    "BatchTiming": "tidegate.core.rates",
    "Brokers": "tidegate.core.state.ports",
    "JobRunner": "tidegate.core.state.ports",
    "Ledger": "tidegate.core.state.ledger",
    "OffsetRange": "tidegate.core.model.ranges",
    "PidRateEstimator": "tidegate.core.rates",
    "Pipeline": "tidegate.core.config.pipeline",
    "RateLimiter": "tidegate_receivers.rules.limits",
    "RatePolicy": "tidegate.core.rates.policy",
    "SinkReader": "tidegate.core.state.ports",
    "SinkWriter": "tidegate.sinks.port",
    "StateStore": "tidegate.core.state.ports",
    "TidegateError": "tidegate.core.model.errors",
    "TopicPartition": "tidegate.core.model.ranges",
    "Tracked": "tidegate_receivers.rules.placement",
    "VariableStore": "tidegate.airflow.store",
    "WatermarkThrottle": "tidegate_receivers.rules.limits",
    "Worker": "tidegate_receivers.rules.placement",
    "build_dags": "tidegate.airflow.dags",
    "header": "tidegate.formats.columns",
    "make_rate_policy": "tidegate.core.rates.policies",
    "max_messages_per_partition": "tidegate.core.rates",
    "merged": "tidegate.core.model.ranges",
    "parse_json": "tidegate.formats.json",
    "reject": "tidegate.formats.columns",
    "reschedule_receiver": "tidegate_receivers.rules.placement",
    "schedule_receivers": "tidegate_receivers.rules.placement",
    "share_limit": "tidegate.core.rates",
    "split_ranges": "tidegate.core.model.splitting",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
