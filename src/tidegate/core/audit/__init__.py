"""What the table proves: whether log and table hold the same records, what to restore or load again; and the lag."""
