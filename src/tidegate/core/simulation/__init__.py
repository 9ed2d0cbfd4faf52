"""A pipeline in virtual time: the real planner and rate policies, on a modelled broker and sink. Pure: no clock, no I/O."""
