"""When a table needs maintenance, and which snapshots may expire."""
