"""How many records a batch may hold: pure arithmetic, no clock, no I/O.

The policies are in modules of their own (`policies.make_rate_policy`); a batch's limits are in `tidegate.core.planning.plan`.
"""

from tidegate.core.rates.limits import max_messages_per_partition, share_limit
from tidegate.core.rates.pid import PidRateEstimator, PidState
from tidegate.core.rates.policy import BatchTiming

__all__ = ["BatchTiming", "PidRateEstimator", "PidState", "max_messages_per_partition", "share_limit"]
