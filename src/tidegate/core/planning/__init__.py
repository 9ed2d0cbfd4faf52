"""What a run reads and where it leads: evidence, trust, ranges, commit."""
