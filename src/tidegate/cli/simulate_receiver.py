"""`tidegate simulate-receiver`: what each policy of back-pressure makes of a burst at a receiver, in virtual time."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.charts import draw_receivers, duration
from tidegate.cli.plots import open_receiver_plot
from tidegate.cli.shared import HERE, AsJson, Project, out, show_progress, the_pipeline
from tidegate.cli.simulate import cursor_of
from tidegate.core.buffers import MEMORY_BYTES
from tidegate.core.config.downstream_conflicts import reads_topic
from tidegate.core.config.pipeline import Pipeline
from tidegate.core.config.receiver import Receiver
from tidegate.core.errors import RequestError
from tidegate.core.rates.control import RateControl
from tidegate.core.simulation.bursts import (
    FULL_BATCHES,
    POLICIES,
    USUAL_FACTOR,
    Burst,
    Throttled,
    backpressures,
    burst,
    compare_receivers,
)
from tidegate.core.simulation.comparison import parse_policy
from tidegate.core.simulation.experiment import Model, limits_of, model_of
from tidegate.core.simulation.plant import Plant
from tidegate.core.simulation.receivers import Inlet
from tidegate.core.state.cursor import Cursor
from tidegate.pipelines import load_pipelines, load_receiver, pipelines_of, receivers_of

app = typer.Typer()

RECORD_BYTES = 100.0
"""Of a record's value, where no batch has told its size."""


@app.command("simulate-receiver")
def simulate_receiver(  # noqa: PLR0913, PLR0917 - one option for each thing that a simulation can be asked
    receiver: Annotated[str, typer.Argument(help="name of the receiver", metavar="RECEIVER")],
    project: Project = HERE,
    pipeline: Annotated[
        str | None, typer.Option(help="the pipeline that loads its topic; by default that of its file, or the only one")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="records/s that all senders send; by default as the pipeline's batches show")
    ] = None,
    factor: Annotated[float, typer.Option("--burst", help="how much more they send in the burst")] = USUAL_FACTOR,
    lasting: Annotated[float | None, typer.Option(help="minutes of the burst; by default 5 intervals")] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="static, rate, watermark or credit; give several to compare them. By default all of them"),
    ] = None,
    max_backlog: Annotated[
        int | None, typer.Option(help="records of the topic that may wait; by default as the file says, or two full batches")
    ] = None,
    instances: Annotated[int | None, typer.Option(help="instances of the receiver; by default as the file says")] = None,
    batches: Annotated[
        str | None,
        typer.Option(help="the pipeline's rate policy, such as target or static,max_records=9000; by default its own"),
    ] = None,
    utilization: Annotated[float, typer.Option(help="share of the interval that a full run takes")] = 0.9,
    a: Annotated[
        float | None, typer.Option("--a", help="seconds of a run that do not depend on its records; by default of its history")
    ] = None,
    b: Annotated[float | None, typer.Option("--b", help="seconds of each record; by default of the history")] = None,
    interval: Annotated[float | None, typer.Option(help="seconds between runs; by default the pipeline's")] = None,
    hours: Annotated[float | None, typer.Option(help="virtual time; by default until 25 intervals after the burst")] = None,
    noise: Annotated[float, typer.Option(help="relative standard deviation of a run's time, such as 0.1")] = 0.0,
    seed: Annotated[int, typer.Option(help="of the noise, and of when instances look at the pipeline")] = 0,
    plot: Annotated[Path | None, typer.Option(help="also draw into this .png or .svg file", metavar="FILE")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Simulate a burst at a receiver in virtual time: what waits where, under each policy of back-pressure.

    The policies, the pipeline's planner and its rate policy are those of real runs; senders, brokers and sink are modelled. A
    run takes a + b * n seconds for n records, by the pipeline's own last batches, or as given. Nothing is changed.
    """
    this = _the_receiver(project, receiver)
    behind = the_pipeline(project, pipeline or _pipeline_of(this, project))
    if not reads_topic(behind.source, this.topic):
        raise RequestError(
            f"pipeline {behind.name} reads {behind.source}, and not topic {this.topic}", fix="Name the pipeline that loads it"
        )
    cursor = Cursor(behind.name) if a is not None and b is not None else cursor_of(behind, project, fit=False)
    interval_s = behind.interval_s if interval is None else interval
    model = model_of(cursor.timings, interval_s=interval_s, utilization=utilization, a=a, b=b, rate=rate)
    control = _control(behind, batches, interval_s)
    full = _full_batch(model, behind, control)
    if model.arrival_source == "half of a full load":
        model = replace(model, arrival_rate=full / (2 * interval_s))
    plant = Plant(
        interval_s,
        model.a,
        model.b,
        model.arrival_rate,
        noise=noise,
        limits=limits_of(behind.limits, cursor.record_bytes),
        catch_up=behind.catch_up,
    )
    inlet = Inlet(
        plant,
        control,
        instances=this.instances if instances is None else instances,
        max_rate=this.rate.max,
        buffer=max(1, int(this.buffer_bytes / ((cursor.record_bytes or RECORD_BYTES) + MEMORY_BYTES))),
        block_s=this.block.interval,
    )
    asked = burst(
        inlet,
        factor=factor,
        lasting_s=None if lasting is None else 60 * lasting,
        seconds=None if hours is None else 3600 * hours,
    )
    unbounded = (control is None or control.bound({}) is None) and behind.limits.max_records is None
    names = policy or [name for name in POLICIES if name != "rate" or not unbounded]
    if unbounded and "rate" in names:
        raise RequestError(
            f"nothing bounds the batches of pipeline {behind.name}, so no rate follows from them",
            fix="Name a rate policy of the pipeline, such as --batches target",
        )
    settings = {**this.backpressure.settings, **({} if max_backlog is None else {"max_backlog": max_backlog})}
    policies = backpressures(settings, names, FULL_BATCHES * full)
    save = open_receiver_plot(plot) if plot else None
    with show_progress() as progress:
        done = compare_receivers(asked, policies, seed=seed, progress=lambda k: progress("simulating", k, len(policies)))
    if save:
        save(f"{this.name}: {_what(asked)}", asked, done)
    if as_json:
        sys.stdout.write(json.dumps(_to_json(this, behind, model, asked, done), indent=2) + "\n")
        return
    _print(this, behind, model, asked, done, full)
    if unbounded and not policy:
        out.print(f"rate is left out: nothing bounds the batches of {behind.name}; give it a rate policy with --batches")
    if plot:
        out.print(f"drawn in {plot}", markup=False)


def _the_receiver(project: Path, name: str) -> Receiver:
    """The receiver of that name. Raises RequestError where there is none, ConfigError where its file is not valid."""
    folder = receivers_of(pipelines_of(project))
    files = {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    if name not in files:  # so no name leads out of the folder
        raise RequestError(f"there is no receiver {name} in {folder}", fix=f"The receivers are: {', '.join(files) or 'none'}")
    return load_receiver(files[name])


def _pipeline_of(receiver: Receiver, project: Path) -> str:
    """The pipeline that its file names, or the only one that reads its topic."""
    if receiver.backpressure.pipeline is not None:
        return receiver.backpressure.pipeline
    stated = load_pipelines(pipelines_of(project)).values()
    names = [each.name for each in stated if isinstance(each, Pipeline) and reads_topic(each.source, receiver.topic)]
    if len(names) != 1:
        found = f"the pipelines {', '.join(names)} read" if names else "no pipeline reads"
        raise RequestError(f"{found} topic {receiver.topic}", fix="Name the one to simulate with --pipeline")
    return names[0]


def _control(pipeline: Pipeline, batches: str | None, interval_s: float) -> RateControl | None:
    """The pipeline's rate policy, or another one, at that interval."""
    if batches is not None:
        return RateControl(parse_policy(batches), interval_s)
    own = pipeline.rate_control
    return None if own is None else replace(own, interval_s=interval_s)


def _full_batch(model: Model, pipeline: Pipeline, control: RateControl | None) -> int:
    """The most records of a batch: what a run has time for, within what bounds it otherwise."""
    fixed = None if control is None else control.settings.get("max_records")
    bounds = (model.advice.full_batch, pipeline.limits.max_records, fixed)
    return max(1, min(bound for bound in bounds if bound is not None))


def _to_json(receiver: Receiver, pipeline: Pipeline, model: Model, asked: Burst, done: list[Throttled]) -> dict[str, object]:
    inlet = asked.inlet
    return {
        "receiver": receiver.name,
        "pipeline": pipeline.name,
        "instances": inlet.instances,
        "max_rate": inlet.max_rate,
        "buffer": inlet.buffer,
        "batches": inlet.control.settings if inlet.control else None,
        "interval_s": model.interval_s,
        "a": model.a,
        "b": model.b,
        "rate": model.arrival_rate,
        "rate_is": model.arrival_source,
        "seconds": asked.seconds,
        "burst": {"factor": asked.factor, "since_s": asked.since_s, "until_s": asked.until_s},
        "policies": {each.name: each.to_json() for each in done},
    }


def _print(receiver: Receiver, pipeline: Pipeline, model: Model, asked: Burst, done: list[Throttled], full: int) -> None:
    inlet = asked.inlet
    cost = [f"a run takes {model.a:.3g} s and {1e6 * model.b:.3g} s for each million records, as given"]
    out.print("\n".join(model.fit.sentences() if model.fit else cost), markup=False)
    policy = inlet.control.settings["policy"] if inlet.control else "none"
    out.print(f"pipeline {pipeline.name}: a full batch has {full:,} records; rate policy: {policy}", markup=False)
    out.print(f"{receiver.name}, {_what(asked)}", markup=False)
    out.print(
        f"instances: {inlet.instances}; records sent: {model.arrival_rate:,.6g}/s ({model.arrival_source}); "
        f"max_backlog: {done[0].backpressure.max_backlog:,}",
        markup=False,
    )
    draw_receivers(asked, done)


def _what(asked: Burst) -> str:
    time = f"{duration(asked.seconds)} at an interval of {duration(asked.inlet.plant.interval_s)}"
    return f"{time}; from {duration(asked.since_s)} to {duration(asked.until_s)} {asked.event}"
