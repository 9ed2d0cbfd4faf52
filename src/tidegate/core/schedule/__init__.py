"""A batch from plan to commit: what it reads, what of the saved state is trusted, and how the cursor moves."""
