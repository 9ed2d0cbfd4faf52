"""Receivers: they land records that others push (HTTP posts, lines over TCP, a growing file) in a topic.

`tidegate` finds them by entry points (`pyproject.toml`).
"""
