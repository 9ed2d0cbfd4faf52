"""What a table's own commits say, read through PyIceberg: no Spark, no JVM."""
