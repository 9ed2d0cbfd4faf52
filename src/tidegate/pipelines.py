"""Reading the folder of pipeline files.

A file that is not valid yields its error, so that one broken file never hides the others.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tidegate.config import Pipeline, parse_pipeline
from tidegate.errors import ConfigError


def load_pipeline(file: Path) -> Pipeline:
    """The pipeline in a YAML file, named after the file.

    Raises:
        ConfigError: not readable, not YAML, or not a valid pipeline; the message names file, setting and what would be valid.
    """
    shown = f"{file.parent.name}/{file.name}"
    try:
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown}: cannot be read: {error}", file=shown) from error
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise ConfigError(f"{shown}: not valid YAML: {problem}", file=shown) from error
    return parse_pipeline(file.stem, settings, file=shown)


def load_pipelines(folder: Path) -> dict[Path, Pipeline | ConfigError]:
    """Every `*.yaml` in the folder, sorted by name, as a pipeline or as what is wrong with it."""
    found: dict[Path, Pipeline | ConfigError] = {}
    for file in sorted(folder.glob("*.yaml")):
        try:
            found[file] = load_pipeline(file)
        except ConfigError as error:
            found[file] = error
    return found
