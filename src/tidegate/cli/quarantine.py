"""`tidegate quarantine`: which records a pipeline has rejected, why, and the replay that would empty its quarantine."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from tidegate.cli.shared import (
    HERE,
    AsJson,
    Name,
    Project,
    open_remote,
    out,
    print_json,
    print_table,
    show_progress,
    the_pipeline,
)
from tidegate.core.audit.quarantine import Quarantined, judge_quarantine
from tidegate.core.model.errors import RequestError
from tidegate.core.model.watermarks import Watermarks

app = typer.Typer()
LONGEST = 200
"""Characters of a sample."""


@app.command()
def quarantine(
    pipeline: Name,
    project: Project = HERE,
    most: Annotated[int, typer.Option("--reasons", help="the commonest reasons to show, each with a sample", min=1)] = 10,
    *,
    as_json: AsJson = False,
) -> None:
    """Show the records that loads have rejected: reasons, counts, the first and last of each, samples, and a replay.

    The replay loads them again, after the transform or the sender has been corrected: what it accepts moves into the table.
    """
    from tidegate.sinks.iceberg.quarantine_reader import read_rejections, read_values  # noqa: PLC0415

    this = the_pipeline(project, pipeline)
    table = this.quarantine_table
    if table is None:
        raise RequestError(f"{this.name} has no quarantine", fix="Add `quarantine: {}` to its file")
    with open_remote(project) as remote, show_progress() as progress:
        progress("reading the quarantine", 0, None)
        rejections = read_rejections(table)
        brokers, topics = remote.brokers(this), {one.topic for one in rejections}
        there = topics.intersection(brokers.match_topics(".*") if topics else ())
        log = brokers.watermarks(sorted(there), isolation_level=this.source.isolation_level) if there else Watermarks({}, {})
        found = judge_quarantine(rejections, remote.reader(this).receipts(this.sink.table, this.name), log)
        shown = found.reasons[:most]
        samples = read_values(table, [reason.first for reason in shown])
    replay = replay_of(this.name, found)
    if as_json:
        reasons = [{**reason.to_json(), "sample": _text(samples.get(reason.first))} for reason in found.reasons[:most]]
        said: dict[str, Any] = {"pipeline": this.name, "table": table, "records": found.records, "left": found.left}
        said["gone"] = found.gone
        print_json({**said, "reasons": reasons, "replay": replay})
        return
    out.print(f"{found.records:,} records are in {table}", markup=False)
    if found.left:
        out.print(f"{found.left:,} more are of loads that did not commit, or have yet to; the next try removes them")
    if found.gone:
        out.print(f"{found.gone:,} of them are not in the log any more: no replay reads them, only {table}", markup=False)
    if shown:
        rows = Table("reason", "by", "records", "first", "last", "the first one")
        for reason in shown:
            places = reason.first.place, reason.last.place
            row = (reason.reason, reason.rejected_by, f"{reason.records:,}", *places, _text(samples.get(reason.first)))
            rows.add_row(*map(Text, row))  # anybody's text, which is no markup
        print_table(rows, fold=True)
    if replay is not None:
        out.print(f"once they can be loaded: {replay}", markup=False)


def replay_of(pipeline: str, found: Quarantined) -> str | None:
    """The command that loads all rejected records again that the log holds; None where there are none."""
    bounds: list[str] = []
    for r in found.ranges:
        of = f"{r.topic}:{r.partition}"
        bounds += ["--from", f"{of}:{r.from_offset}", "--until", f"{of}:{r.until_offset}"]
    return shlex.join(["tidegate", "replay", pipeline, *bounds]) if bounds else None


def _text(value: bytes | None) -> str:
    """A sample of a record's value."""
    if value is None:
        return "no value"
    text = value.decode(errors="backslashreplace")
    printable = "".join(c if c.isprintable() else " " for c in text[: LONGEST + 1])
    return printable if len(printable) <= LONGEST else f"{printable[:LONGEST]}…"
