"""A batch: evidence, trust, topics, plan, commit, and what runs them (`run`); admission, acceptances, the trigger by lag."""
