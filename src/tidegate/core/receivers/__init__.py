"""Where receivers run, and how much they may take in: pure arithmetic, time as an argument, no clock, no I/O."""

from tidegate.core.receivers.placement import Tracked, Worker, reschedule_receiver, schedule_receivers

__all__ = ["Tracked", "Worker", "reschedule_receiver", "schedule_receivers"]
