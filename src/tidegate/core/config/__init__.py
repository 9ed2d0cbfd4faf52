"""What a pipeline file may say: its settings, schedules, topic patterns, and who owns a table."""
