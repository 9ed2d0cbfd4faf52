"""DAGs, operators and the Variable store with Airflow as a library."""
