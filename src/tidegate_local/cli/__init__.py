"""The commands of the embedded platform, which `tidegate` finds by the entry-point group `tidegate.cli`."""

from __future__ import annotations

import typer

from tidegate_local.cli import platform, tools


def add_to(app: typer.Typer) -> None:
    """Add them to the command `tidegate`."""
    for commands in (platform, tools):
        app.add_typer(commands.app)
