"""The platform of a project, for this package's commands and, as the entry point `tidegate.platform`, for all others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate_local.platform import Platform


def open_platform(project: Path, ports: dict[str, int] | None = None) -> Platform:
    """The embedded platform of a project's folder; nothing is started."""
    from tidegate_local.platform import Platform  # noqa: PLC0415 - with psutil, for the commands that need it

    root = project.resolve()
    return Platform(root / ".tidegate", root, ports=ports or {})
