"""What a receiver file holds, and what is wrong with one beside others."""
