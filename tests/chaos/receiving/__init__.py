"""Chaos for receivers: a sender that remembers every acknowledgement, and the processes between it and the table killed."""
