"""The proof of exactly-once: the platform under faults, and the verdict on what the table holds."""
