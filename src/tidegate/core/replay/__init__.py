"""A replay: what is asked, which offsets that selects, its run, report and verdict."""
