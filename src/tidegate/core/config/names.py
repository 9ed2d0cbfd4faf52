"""Which names pipelines, receivers, topics, tables and transforms may have.

What is accepted here is accepted by Airflow, Kafka and their databases: one file that they refuse must not stop the others.
"""

from __future__ import annotations

import re

from tidegate.core.config.sinks import ICEBERG

TOPIC = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
PIPELINE = re.compile(r"[a-z][a-z0-9_]{0,59}")
TABLE = ICEBERG.table
TRANSFORM = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*")

# The most characters that Airflow's columns and Kafka's protocol take.
LONGEST_GROUP = 255
LONGEST_ID = 250  # of an Airflow connection, and of a module with its function
LONGEST_POOL = 256
LONGEST_TABLE = LONGEST_POOL - len("tidegate_")
LONGEST_TAG = 100

PIPELINES = "pipelines"
"""The folder of the files of pipelines, by which errors name them too."""
REPLAY_DAG = "__replay"
"""The suffix of the DAG that replays a pipeline."""
RECEIVE_DAG = "__receive"
"""The suffix of the DAG that runs a receiver."""
MAINTAIN_DAG = "__maintain"
"""The suffix of the DAG that maintains a pipeline's table."""
IDEMPOTENCY_KEY = "tidegate.idempotency_key"
"""The header of a record that tells it from a repeat of another one."""
DEFAULT_POOL = "default_pool"
"""The pool that Airflow itself makes; tasks are in it unless they name another one."""
COMMITS_TABLE = "_commits"
"""The suffix of the table that keeps the commits of a table when their snapshots expire."""
CATCH_UP_RUN = "catch_up__"
"""The prefix of the ids of runs that another run has started, since it left records behind."""
BACKFILL = "backfill"
"""Airflow's type of the runs of a date backfill."""
BACKFILL_RUN = f"{BACKFILL}__"
"""The prefix of the ids that Airflow gives to such runs."""

# Airflow masks the value of a Variable whose key contains one of these (its `DEFAULT_SENSITIVE_FIELDS`, without those that
# contain another), and a pipeline's name is part of its keys.
MASKED_WORDS = (
    "access_key",
    "api_key",
    "apikey",
    "auth_header",
    "authorization",
    "bearer",
    "connection_string",
    "dsn",
    "keyfile_dict",
    "passphrase",
    "passwd",
    "password",
    "private_key",
    "proxies",
    "proxy",
    "secret",
    "service_account",
    "service_key",
    "token",
    "webhook_url",
)


def name_faults(name: str) -> list[str]:
    """What is wrong with the name of a pipeline or receiver, which is the name of its file; one sentence for each fault."""
    faults = []
    if not PIPELINE.fullmatch(name):
        faults.append("1 to 60 lower-case letters, digits and _, beginning with a letter")
    faults += [
        f'a name that does not end with "{suffix}", the suffix of the DAGs that {what}'
        for suffix, what in ((REPLAY_DAG, "replay"), (RECEIVE_DAG, "receive"), (MAINTAIN_DAG, "maintain tables"))
        if name.endswith(suffix)
    ]
    faults += [
        f'a name without "{word}": Airflow masks Variables whose keys contain it' for word in MASKED_WORDS if word in name
    ]
    return [f'the file\'s name: expected {expected}; got "{name}"' for expected in faults]
