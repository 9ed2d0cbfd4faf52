"""Where receivers run, how long, how much they take in, and what becomes a record: pure, no clock, no I/O."""
