"""Where receivers run, how long, and how much they take in: pure, time as an argument, no clock, no I/O."""

from tidegate.core.receivers.limiter import RateLimiter
from tidegate.core.receivers.placement import Tracked, Worker, reschedule_receiver, schedule_receivers
from tidegate.core.receivers.watermark import WatermarkThrottle

__all__ = [
    "RateLimiter",
    "Tracked",
    "WatermarkThrottle",
    "Worker",
    "reschedule_receiver",
    "schedule_receivers",
]
