"""Replays of `payments` that a person approves where they are larger than MOST offsets; smaller ones go on by themselves.

It goes with any pipeline: put its name in place of `payments`, and this file beside your other DAGs. Trigger
`payments__gated_replay` with what the replay's own form takes, such as {"batches": "12..18"}. Give both ends of a range: one
that is left open may be further on when the replay is approved. Whoever may answer this DAG's required actions approves, or
only those whom `assigned_users` names. Whoever may trigger `payments__replay` itself needs no approval. A program that answers
within a second of the question fails the task (Airflow 3.3.2): it takes the end of the task's process for another one's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Param, dag, task

REPLAY = "payments__replay"
MOST = 100_000
ASKED = Param({"batches": "1"}, type="object", title="Replay", description="The parameters of the replay.")


def run_replay(task_id: str, conf: Any, **more: Any) -> TriggerDagRunOperator:
    """A task that starts a run of the replay, and waits for its end without a slot of a worker."""
    waits: dict[str, Any] = {"wait_for_completion": True, "deferrable": True, "poke_interval": 5}
    return TriggerDagRunOperator(task_id=task_id, trigger_dag_id=REPLAY, conf=conf, logical_date=None, **waits, **more)


@task.branch
def gate(**context: Any) -> str:
    """The task that comes next, by what the dry run has found."""
    ti = context["ti"]
    run_id = ti.xcom_pull(task_ids="measure", key="trigger_run_id")
    found = ti.xcom_pull(dag_id=REPLAY, run_id=run_id, task_ids="plan", key="dry_run")
    ti.xcom_push(key="found", value=found)
    return "ask" if found["total"] > MOST else "replay"


@dag(schedule=None, params={"replay": ASKED}, is_paused_upon_creation=False)
def payments__gated_replay() -> None:
    """A dry run says how large the replay is. No answer within a day counts as no."""
    measure = run_replay("measure", "{{ dict(params.replay, dry_run=True) | tojson }}")
    ask = ApprovalOperator(
        task_id="ask",
        subject="Replay {{ '{:,}'.format(ti.xcom_pull('gate', key='found').total) }} offsets of payments?",
        body="`{{ params.replay | tojson }}`, in {{ ti.xcom_pull('gate', key='found').chunks }} loads",
        response_timeout=timedelta(days=1),
        defaults="Reject",
    )
    replay = run_replay("replay", "{{ params.replay | tojson }}", trigger_rule="none_failed_min_one_success")
    measure >> gate() >> [ask, replay]
    ask >> replay


payments__gated_replay()
