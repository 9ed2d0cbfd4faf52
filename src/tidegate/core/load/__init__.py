"""The rules of a load: what its receipts say, what it answers, which records are repeats, which record is the culprit."""
