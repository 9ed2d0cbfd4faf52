"""Tidegate's pages inside Airflow's UI: read-only routes of the API server, and the bundle that shows what they answer.

Whatever a page changes goes through Airflow's own REST API with the user's session, so that Airflow authorizes and audits it.
"""

from __future__ import annotations

from pathlib import Path

NAME = "tidegate"
PREFIX = f"/{NAME}"
"""Where Airflow's API server mounts the routes."""
BUNDLE = Path(__file__).parent / "bundle" / "tidegate.js"
BUNDLE_URL = f"{NAME}/bundle/tidegate.js"
"""Relative: Airflow may be served below a path."""
