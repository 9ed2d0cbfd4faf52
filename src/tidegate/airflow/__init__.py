"""Tidegate inside Airflow: Variables, connections, triggers, pools, notes, metrics, lineage."""
