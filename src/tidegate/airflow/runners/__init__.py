"""Ways to run the Spark job of a task, one module each; a task picks one by the type of its connection."""
