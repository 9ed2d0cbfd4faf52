"""Tidegate: Kafka offset ranges as an orchestrated, replayable schedule.

What is listed in `__all__` is the public API. Each name is imported when it is first used, so `import tidegate` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.core.model.errors import TidegateError
    from tidegate.core.model.ranges import OffsetRange, TopicPartition
    from tidegate.core.model.splitting import split_ranges
    from tidegate.core.rates import BatchTiming, PidRateEstimator, max_messages_per_partition, share_limit
    from tidegate.core.rates.policies import make_rate_policy
    from tidegate.core.rates.policy import RatePolicy
    from tidegate_receivers.rules.limits import RateLimiter, WatermarkThrottle
    from tidegate_receivers.rules.placement import Tracked, Worker, reschedule_receiver, schedule_receivers

__version__ = "0.1.0"

__all__ = [
    "BatchTiming",
    "OffsetRange",
    "PidRateEstimator",
    "RateLimiter",
    "RatePolicy",
    "TidegateError",
    "TopicPartition",
    "Tracked",
    "WatermarkThrottle",
    "Worker",
    "make_rate_policy",
    "max_messages_per_partition",
    "reschedule_receiver",
    "schedule_receivers",
    "share_limit",
    "split_ranges",
]

_MODULES = {
    "BatchTiming": "tidegate.core.rates",
    "OffsetRange": "tidegate.core.model.ranges",
    "PidRateEstimator": "tidegate.core.rates",
    "RateLimiter": "tidegate_receivers.rules.limits",
    "TidegateError": "tidegate.core.model.errors",
    "TopicPartition": "tidegate.core.model.ranges",
    "Tracked": "tidegate_receivers.rules.placement",
    "WatermarkThrottle": "tidegate_receivers.rules.limits",
    "Worker": "tidegate_receivers.rules.placement",
    "RatePolicy": "tidegate.core.rates.policy",
    "make_rate_policy": "tidegate.core.rates.policies",
    "max_messages_per_partition": "tidegate.core.rates",
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
