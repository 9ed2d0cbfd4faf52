"""Kafka offset ranges as an orchestrated, replayable schedule: operate pipelines, and run an embedded platform to try them.

Every command that prints data takes `--json`; exit code 0 only when what was asked holds. Heavy clients are imported by the
command that needs them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import requires
from typing import Annotated

import typer

from tidegate import __version__
from tidegate.beside import loaded, registered
from tidegate.cli.shared import err, out, print_json
from tidegate.core.model.errors import ConfigError, TidegateError


def _print_version(asked: bool) -> None:
    if asked:
        out.print(f"tidegate {__version__}", highlight=False)
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version, and exit")]


def _options(*, _version: Version = False) -> None:
    """What every command takes."""


@cache
def commands() -> typer.Typer:
    """The command `tidegate`: what is here, and what the packages beside this one register as `tidegate.cli`."""
    # they import what is shared, and so this package
    from tidegate.cli import check, doctor, handover, init, ledger, quarantine, replay, schedule, simulate  # noqa: PLC0415

    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help=__doc__.splitlines()[0] if __doc__ else None,
    )
    app.callback()(_options)
    for each in (init, check, doctor, schedule, simulate, ledger, quarantine, replay, handover):
        app.add_typer(each.app)
    with _told():
        for name in registered("tidegate.cli"):
            with _told():
                loaded("tidegate.cli", name)(app)
    return app


@contextmanager
def _told() -> Iterator[None]:
    """What cannot be registered is missing among the commands, and does not keep the others from running."""
    try:
        yield
    except ConfigError as error:
        err.print(str(error), style="yellow")


def extras_with(module: str) -> list[str]:
    """The extras of this package that bring a module, by the names of what they require."""
    required = re.compile(rf"{module.partition('.')[0].replace('_', '-')}.*extra == ['\"](\w+)['\"]")
    return sorted({found[1] for line in requires("tidegate") or () if (found := required.match(line))})


def main() -> None:
    """Run a command; an error a user can cause is one message and exit code 1, never a traceback."""
    try:
        commands()()
    except TidegateError as error:
        if "--json" in sys.argv:
            print_json(error.to_dict())
        err.print(f"{type(error).__name__}: ", style="red", end="")
        err.print(str(error))
        raise SystemExit(1) from error
    except ModuleNotFoundError as error:
        extras = extras_with(error.name or "tidegate")
        if not extras:
            raise
        err.print(f"{error.name} is not installed: install Tidegate with its extra {' or '.join(extras)}")
        raise SystemExit(1) from error
    except KeyboardInterrupt as error:
        err.print("stopped")
        raise SystemExit(130) from error
