#!/bin/bash
# The image of PostgreSQL runs this once, when its volume is new: the Iceberg catalog's own database, and an owner for it.
set -euo pipefail
password=$(cat /run/secrets/lake_db_password)

psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --set password="$password" --username "$POSTGRES_USER" --dbname postgres <<'SQL'
create role lake login password :'password';
create database lake owner lake;
revoke connect on database lake from public;
revoke connect on database airflow from public;
SQL
