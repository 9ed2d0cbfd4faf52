"""Ways to run a load's Spark job, one module each; a task picks one by the type of its connection."""
