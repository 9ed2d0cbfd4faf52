"""What the bytes of records mean: a folder for each format, with a way through the JVM and one through Python workers."""
