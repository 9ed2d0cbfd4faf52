#!/bin/sh
# Turns passwords into files that only this user can read, then becomes the command, which no longer has them in its environment.
#   $PGPASSFILE (~/.pgpass)         what libpq (Airflow, PyIceberg), asyncpg (Airflow) and JDBC (Spark) all look into
#   $AIRFLOW_HOME/passwords.json    the login of Airflow's UI and API
set -eu

pgpass() { # database (its owner has the same name), password
  [ -z "$2" ] || printf '*:*:%s:%s:%s\n' "$1" "$1" "$(printf '%s' "$2" | sed 's/[\\:]/\\&/g')"
}

before=$(umask)
umask 077
{ pgpass airflow "${AIRFLOW_DB_PASSWORD:-}"; pgpass lake "${LAKE_DB_PASSWORD:-}"; } > "$PGPASSFILE"
if [ -n "${AIRFLOW_ADMIN_PASSWORD:-}" ]; then
  python -c 'import json, os; print(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))' > "$AIRFLOW_HOME/passwords.json"
fi
umask "$before"
unset AIRFLOW_DB_PASSWORD LAKE_DB_PASSWORD AIRFLOW_ADMIN_PASSWORD
exec "$@"
