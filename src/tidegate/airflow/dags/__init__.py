"""The DAGs of a project: `build_dags`."""
