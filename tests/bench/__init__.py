"""Measurements; nothing in it passes or fails by time."""
