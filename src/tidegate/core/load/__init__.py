"""One load: its job, its answer, its receipt in the sink's commit, and which rows are written anew."""
