"""Tidegate inside Airflow: the Variable store, operators, job runners, and the factory that makes DAGs of pipelines."""
