"""Tidegate inside Airflow: the Variable store, three operators, and the factory that makes DAGs of pipelines."""
