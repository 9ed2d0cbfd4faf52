"""The saved state of a benchmark's schedule, in files."""

from __future__ import annotations

from pathlib import Path

from tidegate.core.model.errors import StateUnavailable


class FileStore:
    """The `StateStore` port over a folder, one file a key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keys(self, prefix: str) -> list[str]:
        return sorted(f.name for f in self.folder.iterdir() if f.name.startswith(prefix))

    def get(self, key: str) -> str:
        try:
            return (self.folder / key).read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise StateUnavailable(f"there is no {key} in {self.folder}", fix="Run the schedule once") from error

    def put(self, key: str, value: str, description: str) -> None:
        del description
        save(self.folder / key, value)

    def delete(self, key: str) -> None:
        (self.folder / key).unlink(missing_ok=True)


def save(file: Path, text: str) -> None:
    """Whole, or not at all."""
    beside = file.with_name(f".{file.name}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)
