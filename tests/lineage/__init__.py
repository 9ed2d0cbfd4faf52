"""What Airflow's OpenLineage provider is told, in an environment that has it (`make test-lineage`)."""
