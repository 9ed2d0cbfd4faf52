"""Without a JVM, a broker or a database."""
