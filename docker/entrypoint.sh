#!/bin/sh
# Makes of the secrets the files that programs look into, readable by this user only, then becomes the command.
#   $PGPASSFILE (~/.pgpass)         what libpq (Airflow, PyIceberg), asyncpg (Airflow) and JDBC (Spark) all look into
#   $AIRFLOW_HOME/passwords.json    the login of Airflow's UI and API
set -eu
: "${SECRETS:=/run/secrets}"

pgpass() { # database; its owner has the same name
  [ -r "$SECRETS/$1_db_password" ] || return 0
  case $(cat "$SECRETS/$1_db_password") in
    *[:\\]* | *[[:space:]]) echo "$1_db_password: clients read ':', '\\' and a space at the end in different ways; take another" >&2; exit 1 ;;
  esac
  printf '*:*:%s:%s:%s\n' "$1" "$1" "$(cat "$SECRETS/$1_db_password")"
}

before=$(umask)
umask 077
{ pgpass airflow; pgpass lake; } > "$PGPASSFILE"
if [ -r "$SECRETS/airflow_admin_password" ]; then
  python -c 'import json, sys; print(json.dumps({"admin": open(sys.argv[1]).read()}))' "$SECRETS/airflow_admin_password" \
    > "$AIRFLOW_HOME/passwords.json"
fi
umask "$before"
# a driver of Spark tells its executors where to call it: by the container's own name, which differs between replicas
SPARK_LOCAL_HOSTNAME=$(hostname)
export SPARK_LOCAL_HOSTNAME
exec "$@"
