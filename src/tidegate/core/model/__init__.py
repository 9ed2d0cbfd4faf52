"""What everything speaks of: offsets, times, hours, fields of records, errors."""
