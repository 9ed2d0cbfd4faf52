"""Each adapter against its real counterpart."""
