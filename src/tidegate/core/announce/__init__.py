"""Which hours are announced of a load whose own answer was lost: their times are asked of the log."""
