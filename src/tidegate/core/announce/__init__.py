"""Which hours of event time a pipeline announces: those that are complete, and earlier ones whose rows changed."""
