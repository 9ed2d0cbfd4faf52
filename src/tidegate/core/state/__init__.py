"""What is saved, and what tables keep of it: cursor, ranges, replays, receipts, jobs, their keys (the ledger); the ports."""
