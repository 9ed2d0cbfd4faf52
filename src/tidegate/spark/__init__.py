"""Spark: read explicit ranges, transform, replace exactly those rows in a sink, and find the receipt.

DataFrame API only, so that the same code runs in a classic session (spark-submit) and through Spark Connect: no RDD, no JVM.
Never imports Airflow or a Kafka client.
"""
