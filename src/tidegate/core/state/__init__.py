"""Saved state: the cursor, the keys that hold it (the ledger), and how values are written."""
