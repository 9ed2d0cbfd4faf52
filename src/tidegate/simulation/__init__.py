"""The planner and the policies in virtual time."""
