"""The link from a task to what its run read or replayed, which Airflow's UI shows beside the task's log.

Airflow asks for it in the API server, also while the task runs, and finds the operators by name and module: so they are not
imported there, which would import Spark's provider.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from airflow.sdk import BaseOperatorLink

from tidegate.airflow.declared import Declared
from tidegate.core.model.uris import run_page

OPERATORS = {
    "plan": ["PlanOperator"],
    "load": ["LoadOperator"],
    "finish": ["FinishOperator"],
    "catch_up": ["CatchUpOperator"],
    "replay": ["PlanReplayOperator"],
}
"""The operators that have the link, by the module of `tidegate.airflow.operators` that they are in."""


class PageLink(BaseOperatorLink):
    """Leads to the page of the task's run."""

    name = "Tidegate"
    operators: ClassVar[list[Any]] = [
        SimpleNamespace(__name__=name, __module__=f"tidegate.airflow.operators.{module}")
        for module, names in OPERATORS.items()
        for name in names
    ]

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The page's address below Airflow's; empty where the DAG is not ours: Airflow finds mapped tasks by name alone."""
        plan = operator.dag.task_dict.get("plan")
        declared = Declared.in_doc(getattr(plan, "doc_json", None))
        if declared is None or ti_key.dag_id not in (declared.pipeline, declared.replay_dag):
            return ""
        return run_page(ti_key.dag_id, ti_key.run_id)
