"""What has run, what the table shows of it, and whether log and table hold the same records."""
