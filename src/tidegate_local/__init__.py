"""The embedded platform: a Kafka broker, a Spark Connect server and Airflow on this machine's loopback.

It exists so that Tidegate can be tried and tested for real with nothing installed but Python and Java. A team runs the
same parts elsewhere and needs nothing of this package.
"""
