"""`tidegate simulate`: what each rate policy would make of a load, an outage or a slower sink, in virtual time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

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
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.model.errors import PlatformError, RequestError, StateError
from tidegate.core.rates.policies import POLICIES
from tidegate.core.state.cursor import Cursor
from tidegate.simulation.experiment import (
    Event,
    Experiment,
    Model,
    Simulated,
    Summary,
    compare,
    experiment,
    limits_of,
    model_of,
    parse_policy,
    policy_at,
)
from tidegate.simulation.plant import Steps, read_load

PANELS = ("records that wait", "records of a batch", "run time, s")
DASHES = ("-", "--", "-.", ":")


def open_plot(file: Path) -> Callable[[str, Experiment, Sequence[Simulated]], None]:
    """What draws a simulation into the file, over what it holds; matplotlib is imported now.

    Raises RequestError: the file is neither .png nor .svg, its folder is missing, or matplotlib is. The function that is
    returned raises it where the file cannot be written.
    """
    if file.suffix.lower() not in (".png", ".svg"):
        raise RequestError(f"--plot: expected a file named .png or .svg, got {file}", fix="Name it so, such as simulation.png")
    if not file.parent.is_dir():
        raise RequestError(f"--plot: there is no folder {file.parent}", fix="Make it, or name another file")
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - an extra that most do not have
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise RequestError(
            f"--plot needs matplotlib, which cannot be imported ({error})",
            fix="Run `pip install matplotlib`, or leave --plot out",
        ) from error

    def save(title: str, asked: Experiment, done: Sequence[Simulated]) -> None:
        unit, size = ("hours", 3600.0) if asked.seconds >= 2 * 3600 else ("minutes", 60.0)
        with rc_context({"svg.hashsalt": "tidegate", "font.size": 9}):
            figure = Figure(figsize=(11, 7), layout="constrained")
            figure.suptitle(title)
            panels = list(figure.subplots(len(PANELS), 1, sharex=True))
            for k, each in enumerate(done):
                batches = each.trace.batches
                starts = [batch.started_s for batch in batches]
                lags = ([second for second, _ in each.trace.lags], [lag for _, lag in each.trace.lags])
                drawn = (lags, (starts, [batch.records for batch in batches]), (starts, [batch.run_s for batch in batches]))
                for panel, (seconds, values) in zip(panels, drawn, strict=True):
                    times = [second / size for second in seconds]
                    panel.step(times, values, where="post", linestyle=DASHES[k % len(DASHES)], label=each.name)
            for panel, shown in zip(panels, PANELS, strict=True):
                panel.set(ylabel=shown, ylim=(0, None), xlim=(0, asked.seconds / size))
                panel.grid(alpha=0.3)
                if asked.event:
                    panel.axvspan(asked.since_s / size, asked.until_s / size, color="0.9")
            panels[-1].axhline(asked.plant.interval_s, color="0.4", linewidth=0.8)
            panels[-1].set_xlabel(unit)
            panels[0].legend(frameon=False)
            try:
                figure.savefig(file, dpi=120, metadata={"Date": None} if file.suffix.lower() == ".svg" else None)
            except OSError as error:
                raise RequestError(f"--plot: {file} cannot be written: {error.strerror}", fix="Name another file") from error

    return save


def count(number: float) -> str:
    """A number of records in at most four digits and a unit."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f}"


def duration(seconds: float) -> str:
    """A time in its unit."""
    for unit, size in (("d", 172_800.0), ("h", 7200.0), ("min", 300.0)):
        if seconds >= size:
            return f"{seconds / {'d': 86_400, 'h': 3600, 'min': 60}[unit]:.3g} {unit}"
    return f"{seconds:.3g} s"


FIGURES: dict[str, Callable[[Summary], str]] = {
    "batches": lambda of: f"{of.batches:,}",
    "longer than 1.25 T": lambda of: f"{of.overlong:,}",
    "longest run": lambda of: duration(of.longest_run_s),
    "worst delay": lambda of: duration(of.worst_delay_s),
    "most lag": lambda of: count(of.most_lag),
    "lag at the end": lambda of: count(of.last_lag),
    "skipped": lambda of: duration(of.skipped_s),
    "backlog lasts": lambda of: "past the end" if of.backlog_s is None else duration(of.backlog_s),
}


def figures(done: Sequence[Simulated]) -> Table:
    """A row for each figure, so that what is compared stands side by side, and a column for each policy."""
    table = Table("policy", box=None, pad_edge=False)
    for each in done:
        table.add_column(each.name.replace(",", ",\n"), justify="right", overflow="fold")
    for title, figure in FIGURES.items():
        table.add_row(title, *(figure(each.summary) for each in done))
    return table


LIMITS = ("max_rate_per_partition", "max_bytes", "max_records", "min_records", "max_delay_s")
"""Of a pipeline, beside each policy's bound."""

app = typer.Typer()


@app.command()
def simulate(  # noqa: PLR0913, PLR0917 - one option for each thing that a simulation can be asked
    pipeline: Name,
    project: Project = HERE,
    load: Annotated[
        Path | None,
        typer.Option(help="CSV with the columns second,records_per_s: each rate holds from its second on", metavar="FILE"),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="records/s that arrive; by default as the pipeline's batches show")] = None,
    factor: Annotated[float | None, typer.Option(help="of --step: how much more a record costs (3)")] = None,
    lasting: Annotated[float | None, typer.Option(help="minutes of --step (50 intervals) or --outage (60)")] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="a policy, with settings: target, or pid,min_rate=10; give several to compare them. "
            "By default the pipeline's own and the other ones of static, pid, fixed_point and target; unlimited has no bound"
        ),
    ] = None,
    utilization: Annotated[float, typer.Option(help="share of the interval that a full run takes, of every policy")] = 0.9,
    a: Annotated[
        float | None, typer.Option("--a", help="seconds of a run that do not depend on its records; by default of its history")
    ] = None,
    b: Annotated[float | None, typer.Option("--b", help="seconds of each record; by default of the history")] = None,
    interval: Annotated[float | None, typer.Option(help="seconds between runs; by default the pipeline's")] = None,
    hours: Annotated[
        float | None, typer.Option(help="virtual time; by default 150 intervals, or what the load and event need")
    ] = None,
    noise: Annotated[float, typer.Option(help="relative standard deviation of a run's time, such as 0.1")] = 0.0,
    seed: Annotated[int, typer.Option(help="of the noise")] = 0,
    plot: Annotated[Path | None, typer.Option(help="also draw into this .png or .svg file", metavar="FILE")] = None,
    *,
    step: Annotated[bool, typer.Option("--step", help="a sink that becomes slower, and recovers")] = False,
    outage: Annotated[bool, typer.Option("--outage", help="a time in which nothing can be committed")] = False,
    catch_up: Annotated[
        bool,
        typer.Option(
            "--catch-up", help="start the next run at once while more than a batch waits; by default as the file says"
        ),
    ] = False,
    fit: Annotated[bool, typer.Option("--fit", help="only print what a run costs by the last 100 batches")] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate a pipeline in virtual time: lag, batch sizes, run times and skipped time under each rate policy.

    The planner and the policies are those of real runs; broker and sink are modelled. A run takes a + b * n seconds for n
    records, by the pipeline's own last batches, or as given. Nothing is changed.
    """
    this = the_pipeline(project, pipeline)
    if step and outage:
        raise RequestError("--step and --outage exclude each other", fix="Simulate one after the other")
    event: Event | None = "step" if step else "outage" if outage else None
    if load is not None and rate is not None:
        raise RequestError("--load and --rate exclude each other", fix="Write the rate into the file, or leave the file out")
    cursor = (
        Cursor(pipeline=this.name, seq=0) if a is not None and b is not None and not fit else cursor_of(this, project, fit=fit)
    )
    model = model_of(
        cursor.pace.timings,
        interval_s=this.interval_s if interval is None else interval,
        utilization=utilization,
        a=None if fit else a,
        b=None if fit else b,
        rate=rate,
    )
    if fit:
        if as_json:
            print_json({**(model.fit.to_json() if model.fit else {}), "sentences": model.sentences()})
        else:
            out.print("\n".join(model.sentences()))
        return
    asked = experiment(
        model,
        load=None if load is None else _read_load(load),
        event=event,
        factor=factor,
        lasting_s=None if lasting is None else 60 * lasting,
        seconds=None if hours is None else 3600 * hours,
        noise=noise,
        limits=limits_of(this.limits, cursor.pace.record_bytes),
        catch_up=catch_up or this.catch_up,
    )
    settings = {text: parse_policy(text) for text in policy} if policy else _policies_for(this, model)
    policies = {text: policy_at(each, asked.plant, utilization) for text, each in settings.items()}
    save = open_plot(plot) if plot else None
    with show_progress() as progress:
        done = compare(
            asked.plant, policies, asked.seconds, seed=seed, progress=lambda k: progress("simulating", k, len(policies))
        )
    if save:
        save(f"{this.name}: {_what(asked)}", asked, done)
    if as_json:
        # Rich would take longer to print thousands of batches than they take to simulate
        sys.stdout.write(json.dumps(_to_json(this, model, asked, done), indent=2) + "\n")
    else:
        _print(this, model, asked, done, load=load)
        if plot:
            out.print(f"drawn in {plot}")


def _policies_for(pipeline: Pipeline, model: Model) -> dict[str, Mapping[str, Any]]:
    """The pipeline's own policy first, where it has one, and the other policies by default, each under its settings as text.

    Where a run's overhead takes all its time, no bound of `static` follows from the cost, so it is left out.
    """
    own = pipeline.backpressure.settings if pipeline.rate_control else {}
    stated = ",".join(str(value) if name == "policy" else f"{name}={value}" for name, value in own.items())
    left_out = {own.get("policy"), *(["static"] if not model.advice.full_batch else [])}
    return {**({stated: own} if own else {}), **{name: {"policy": name} for name in POLICIES if name not in left_out}}


def cursor_of(pipeline: Pipeline, project: Path, *, fit: bool) -> Cursor:
    """The pipeline's cursor; where there is none to read, the error also names what does without, unless a fit is asked for."""
    try:
        with open_remote(project) as remote:
            return remote.cursor(pipeline)
    except (PlatformError, StateError) as error:
        if fit:
            raise
        fix = f"{error.fix or 'Read the log of the pipeline'}; a simulation also runs without, given --a and --b"
        raise type(error)(error.message, fix=fix, **error.fields) from error


def _read_load(file: Path) -> Steps:
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            return read_load(lines, name=file.name)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise RequestError(
            f"{file} cannot be read: {reason}", fix="Name a CSV with the columns second,records_per_s"
        ) from error


def _to_json(pipeline: Pipeline, model: Model, asked: Experiment, done: list[Simulated]) -> dict[str, object]:
    return {
        "pipeline": pipeline.name,
        "interval_s": model.interval_s,
        "utilization": model.utilization,
        "a": model.a,
        "b": model.b,
        "arrival_rate": model.arrival_rate,
        "arrival_rate_is": model.arrival_source,
        "fit": model.fit.to_json() if model.fit else None,
        "advice": model.advice.to_json(),
        "seconds": asked.seconds,
        "event": {"what": asked.event, "since_s": asked.since_s, "until_s": asked.until_s} if asked.event else None,
        "policies": {each.name: each.to_json() for each in done},
    }


def _print(pipeline: Pipeline, model: Model, asked: Experiment, done: list[Simulated], *, load: Path | None) -> None:
    arrives = f"{model.arrival_rate:,.6g} records/s ({model.arrival_source})" if load is None else f"as {load}"
    told = [*model.sentences(), *([model.advice.verdict] if load is None else [])]
    stated = asked.plant.limits.limits
    limits = ", ".join(f"{name} {value:,}" for name in LIMITS if (value := getattr(stated, name)) is not None)
    out.print("\n".join(told))
    out.print(f"{pipeline.name}, {_what(asked)}; arrivals: {arrives}")
    if limits:
        out.print(f"limits of the pipeline, beside each policy's bound: {limits}")
    print_table(figures(done), fold=True)


def _what(asked: Experiment) -> str:
    time = f"{duration(asked.seconds)} at an interval of {duration(asked.plant.interval_s)}"
    if asked.event is None:
        return time
    return f"{time}; from {duration(asked.since_s)} to {duration(asked.until_s)} {asked.event}"
