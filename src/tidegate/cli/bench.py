"""`tidegate bench`: measure, save, and write the page of figures."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from tidegate.cli.plots import Draw, open_bars
from tidegate.cli.shared import err, out, print_table, show_progress
from tidegate.core.errors import RequestError

if TYPE_CHECKING:
    from tidegate.bench.suite import Comparison, Result

app = typer.Typer()


@app.command()
def bench(
    names: Annotated[list[str] | None, typer.Argument(help="comparisons; all by default", metavar="[NAME]...")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="how often each contender is measured, after rounds that warm up")] = 5,
    records: Annotated[
        int,
        typer.Option(
            min=1000, help="records of a large range; fewer than 50,000 rehearse: small sizes, no warm-up, short looks"
        ),
    ] = 4_000_000,
    json_file: Annotated[Path | None, typer.Option("--json", help="save every measured value", metavar="FILE")] = None,
    page_file: Annotated[
        Path | None,
        typer.Option(
            "--page", help="write a Markdown page, and its plots into a folder of its name (needs matplotlib)", metavar="FILE"
        ),
    ] = None,
    saved: Annotated[
        list[Path] | None,
        typer.Option(
            "--from", help="show what --json saved, and measure nothing; give several, the later replace", metavar="FILE"
        ),
    ] = None,
    *,
    list_: Annotated[bool, typer.Option("--list", help="list the comparisons")] = False,
) -> None:
    """Measure Tidegate beside the usual ways of doing the same, on an embedded platform in a temporary folder.

    Exit code 0 where all that was asked for is measured, whether or not its bars are met; 1 where a comparison failed. The
    others are measured all the same, and their figures shown and saved.
    """
    from tidegate.bench.catalog import COMPARISONS, chosen  # noqa: PLC0415 - imports the clients of all that is measured
    from tidegate.bench.page import page  # noqa: PLC0415 - as above
    from tidegate.bench.suite import to_json  # noqa: PLC0415

    comparisons = chosen(names or [])
    if list_:
        for comparison in comparisons:
            out.print(f"{comparison.name:12}{comparison.title}", markup=False)
        return
    _check_files(json_file, page_file)
    draw = None if page_file is None else open_bars()
    measured = _read(saved) if saved else {}
    failed = {} if saved else _measure(comparisons, rounds, records, measured)
    results = {c.name: measured[c.name] for c in comparisons if c.name in measured}
    _print(results, comparisons)
    if json_file is not None:
        _write(json_file, to_json(results.values()))
    if page_file is not None and draw is not None:
        _write(page_file, page(COMPARISONS, results, _plots(page_file, results, draw)))
    for name, error in failed.items():
        err.print(f"{name} failed: {type(error).__name__}: {error}", markup=False, style="red")
    if failed:
        raise typer.Exit(1)


def _check_files(json_file: Path | None, page_file: Path | None) -> None:
    """Refuse, before hours are measured, names of files that cannot be written.

    Raises:
        RequestError: one of them is such a name.
    """
    for file in (json_file, page_file):
        if file is not None and not file.absolute().parent.is_dir():
            raise RequestError(f"there is no folder {file.parent}", fix="Make it, or name another file")
        if file is not None and file.is_dir():
            raise RequestError(f"{file} is a folder", fix="Name a file in it")
    if page_file is not None:
        plots = _plots_of(page_file)
        if plots == page_file:
            raise RequestError(f"the page {page_file} has no suffix, and its plots need a folder of its name", fix="Add .md")
        if plots.exists() and not plots.is_dir():
            raise RequestError(f"{plots} is no folder, and the plots of {page_file} need it", fix="Name another page")


def _plots_of(page_file: Path) -> Path:
    return page_file.with_suffix("")


def _plots(page_file: Path, results: Mapping[str, Result], draw: Draw) -> dict[str, str]:
    """Draw the first measure of each comparison; the images, relative to the page."""
    from tidegate.bench.catalog import COMPARISONS  # noqa: PLC0415 - as above

    plots = {}
    for comparison in COMPARISONS:
        if comparison.name in results:
            plot = _plots_of(page_file) / f"{comparison.name}.svg"
            plot.parent.mkdir(exist_ok=True)
            measure, unit = next(iter(comparison.measures.items()))
            samples = results[comparison.name].samples
            draw(plot, f"{measure}, {unit}", {name: each[measure] for name, each in samples.items() if each.get(measure)})
            plots[comparison.name] = f"{plot.parent.name}/{plot.name}"
    return plots


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise, as Ctrl-C does: otherwise the servers would outlive the command.

    One that is ignored, as by nohup, stays so.
    """

    def end(number: int, _frame: object) -> None:
        for each in before:  # a terminal that is closed sends more than one, which would end the stop of the servers
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _measure(comparisons: Sequence[Comparison], rounds: int, records: int, results: dict[str, Result]) -> dict[str, Exception]:
    """One comparison after the other, into `results`; those that failed, with why."""
    from tidegate.bench.machine import describe  # noqa: PLC0415
    from tidegate.bench.stage import Stage  # noqa: PLC0415
    from tidegate.bench.suite import Result  # noqa: PLC0415

    machine, failed = describe(), dict[str, Exception]()
    with (
        _ended_in_order(),
        # what a server still writes while it ends is no reason to lose what was measured
        tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as folder,
        show_progress() as progress,
    ):
        current = ""
        stage = Stage(
            Path(folder),
            rounds=rounds,
            records=records,
            progress=lambda step, done, total: progress(f"{current}: {step}", done, total),
        )
        try:
            for comparison in comparisons:
                current, at = comparison.name, datetime.now(UTC).isoformat(timespec="minutes")
                try:
                    samples = comparison.measure(stage)
                except Exception as error:  # noqa: BLE001 - told at the end; hours of other measurements are not lost for it
                    failed[comparison.name] = error
                else:
                    results[comparison.name] = Result(comparison.name, at, machine, rounds, records, samples)
                if not stage.rehearsal:
                    stage.down()
        finally:
            stage.down()
    return failed


def _read(files: Sequence[Path]) -> dict[str, Result]:
    from tidegate.bench.suite import from_json, overlay  # noqa: PLC0415

    read = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
            raise RequestError(
                f"{file} cannot be read: {reason}", fix="Name a file that `tidegate bench --json` wrote"
            ) from error
        read.append(from_json(text, str(file)))
    return overlay(read)


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{file} cannot be written: {error.strerror}", fix="Name another file") from error


def _print(results: Mapping[str, Result], comparisons: Sequence[Comparison]) -> None:
    from tidegate.bench.page import bars_table, medians_table  # noqa: PLC0415

    for comparison in comparisons:
        if comparison.name in results:
            result = results[comparison.name]
            _print_rows(medians_table(comparison, result), title=f"{comparison.name}: {comparison.title}")
            _print_rows(bars_table(comparison, result))


def _print_rows(rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    head, *body = rows
    if title is not None:
        out.print(title, style="bold", markup=False)
    table = Table(box=None, pad_edge=False)
    for k, column in enumerate(head):
        table.add_column(column, justify="right" if k and column else "left")
    for row in body:
        table.add_row(*row)
    if body:
        print_table(table)
        out.print()
