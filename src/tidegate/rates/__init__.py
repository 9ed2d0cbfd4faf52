"""How many records a batch may hold: pure arithmetic, no clock, no I/O."""

from tidegate.rates.shares import share_limit

__all__ = ["share_limit"]
