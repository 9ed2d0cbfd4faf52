"""What everything speaks of: offsets, times, records of saved state, errors. Each module needs the standard library alone."""
