"""An Airflow from outside: its REST API, and a schedule as commands see it. Imports nothing of Airflow."""
