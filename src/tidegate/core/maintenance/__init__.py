"""Maintenance of a table: what is done to it, and when it needs it. Pure: the standard library only."""
