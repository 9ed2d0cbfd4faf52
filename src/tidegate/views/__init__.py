"""What pages, commands and metrics show of a pipeline."""
