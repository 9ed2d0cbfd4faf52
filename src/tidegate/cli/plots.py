"""The comparison of policies as PNG or SVG, by matplotlib: an extra of its own, which is imported when a plot is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tidegate.core.model.errors import RequestError
from tidegate.simulation.comparison import Simulated
from tidegate.simulation.experiment import Experiment

PANELS = ("records that wait", "records of a batch", "run time, s")
DASHES = ("-", "--", "-.", ":")


def open_plot(file: Path) -> Callable[[str, Experiment, Sequence[Simulated]], None]:
    """What draws a simulation into the file, over what it holds; matplotlib is imported now.

    Raises:
        RequestError: the file is neither .png nor .svg, its folder is missing, or matplotlib is. The function that is returned
            raises it where the file cannot be written.
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
