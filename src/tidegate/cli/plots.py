"""Simulations and benchmarks as PNG or SVG, by matplotlib: an extra of its own, which is imported when a plot is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.cli.charts import RECEIVER_SERIES, Timed
from tidegate.core.errors import RequestError
from tidegate.core.simulation.bursts import Burst, Throttled
from tidegate.core.simulation.comparison import Simulated
from tidegate.core.simulation.experiment import Experiment
from tidegate.core.simulation.series import Series, largest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

SUFFIXES = (".png", ".svg")
COLOURS = ("#0072b2", "#e69f00", "#cc79a7", "#009e73", "#d55e00", "#56b4e9")
"""Of Okabe and Ito: told apart by people with any colour vision."""
DASHES = ("-", "--", "-.", ":")
PARTS = 120
"""Of the time of a receiver's simulation: what is drawn is the most in each."""

Draw = Callable[[Path, str, Mapping[str, Sequence[float]]], None]
"""Draws the values of each name, whose unit is given, into a file."""

Asked = TypeVar("Asked")
Done = TypeVar("Done")


def open_plot(file: Path) -> Callable[[str, Experiment, Sequence[Simulated]], None]:
    """What draws a simulation of a pipeline, as `open_figure`."""
    return open_figure(file, _fill)


def open_receiver_plot(file: Path) -> Callable[[str, Burst, Sequence[Throttled]], None]:
    """What draws a simulation of a receiver, as `open_figure`."""
    return open_figure(file, _fill_receivers)


def open_figure(
    file: Path, fill: Callable[[Sequence[Axes], Asked, Sequence[Done]], None]
) -> Callable[[str, Asked, Sequence[Done]], None]:
    """What draws a simulation into the file, over what it holds; matplotlib is imported now. `fill` draws into four panels.

    Raises:
        RequestError: the file is neither .png nor .svg, its folder is missing, or matplotlib is. The function that is returned
            raises it where the file cannot be written.
    """
    if file.suffix.lower() not in SUFFIXES:
        raise RequestError(f"--plot: expected a file named .png or .svg, got {file}", fix="Name it so, such as simulation.png")
    if not file.parent.is_dir():
        raise RequestError(f"--plot: there is no folder {file.parent}", fix="Make it, or name another file")
    new_figure = _figures("--plot")

    def save(title: str, asked: Asked, done: Sequence[Done]) -> None:
        with new_figure(file, (11, 9)) as figure:
            panels = list(figure.subplots(4, 1, sharex=True))
            fill(panels, asked, done)
            for panel in panels:
                if panel.get_ylabel().startswith("records"):
                    panel.yaxis.set_major_formatter(_thousands())
            figure.suptitle(title)
            handles, labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)

    return save


def open_bars() -> Draw:
    """What draws a median for each name, with the least and the most of its values, into a file that may be there.

    Raises:
        RequestError: matplotlib is missing. The function that is returned raises it where the file cannot be written.
    """
    new_figure = _figures("--page")

    def save(file: Path, unit: str, values: Mapping[str, Sequence[float]]) -> None:
        with new_figure(file, (9, 0.9 + 0.35 * len(values))) as figure:
            panel = figure.subplots()
            medians = {name: median(each) for name, each in values.items()}
            spread = [
                [medians[name] - min(each) for name, each in values.items()],
                [max(each) - medians[name] for name, each in values.items()],
            ]
            panel.barh(list(medians), list(medians.values()), xerr=spread, color=COLOURS[0], ecolor="0.4", height=0.6)
            panel.invert_yaxis()
            panel.set_xlabel(unit)
            panel.xaxis.set_major_formatter(_thousands())
            panel.grid(axis="x", alpha=0.3)
            panel.set_axisbelow(True)
            panel.spines[["top", "right"]].set_visible(False)

    return save


def _figures(option: str) -> Callable[[Path, tuple[float, float]], AbstractContextManager[Figure]]:
    """What makes an empty figure of a size, and saves it into its file when its block ends.

    Raises:
        RequestError: as `open_figure`.
    """
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - an extra that most do not have
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise RequestError(
            f"{option} needs matplotlib, which cannot be imported ({error})",
            fix=f"Run `pip install matplotlib`, or leave {option} out",
        ) from error

    @contextmanager
    def new_figure(file: Path, size: tuple[float, float]) -> Iterator[Figure]:
        with rc_context({"svg.hashsalt": "tidegate", "font.size": 9}):
            figure = Figure(figsize=size, layout="constrained")
            yield figure
            try:
                figure.savefig(file, dpi=120, metadata={"Date": None} if file.suffix.lower() == ".svg" else None)
            except OSError as error:
                raise RequestError(f"{option}: {file} cannot be written: {error.strerror}", fix="Name another file") from error

    return new_figure


def _thousands() -> EngFormatter:
    from matplotlib.ticker import EngFormatter  # noqa: PLC0415 - as above

    return EngFormatter()


def _fill(axes: Sequence[Axes], asked: Experiment, done: Sequence[Simulated]) -> None:
    interval_s, (_, size) = asked.plant.interval_s, _unit(asked.seconds)
    _prepare(axes, asked, ("records that wait", "records of a batch", "run time, s", "skipped time so far, s"))
    for k, each in enumerate(done):
        series = Series.of(each.trace, interval_s)
        style = _style(k, each.name)
        for panel, points in zip(axes, (series.lag, series.size, series.run_s), strict=False):
            panel.step([second / size for second, _ in points], [value for _, value in points], where="post", **style)
        seconds, sums = [0.0], [0.0]  # skipped time adds up, so that policies are seen side by side
        for second, value in series.skipped_s:
            seconds.append(second / size)
            sums.append(sums[-1] + value)
        axes[3].step([*seconds, asked.seconds / size], [*sums, sums[-1]], where="post", **style)
    axes[2].axhline(interval_s, color="0.4", linewidth=0.8)
    axes[2].annotate("interval", (1, interval_s), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="0.4")
    _finish(axes, asked)
    if not any(Series.of(each.trace, interval_s).skipped_s for each in done):
        axes[3].set_ylim(0, interval_s)


def _fill_receivers(axes: Sequence[Axes], asked: Burst, done: Sequence[Throttled]) -> None:
    _, size = _unit(asked.seconds)
    _prepare(axes, asked, tuple(RECEIVER_SERIES))
    width_s = asked.seconds / PARTS
    for k, each in enumerate(done):
        for panel, points in zip(axes, RECEIVER_SERIES.values(), strict=True):
            values = largest(points(each), asked.seconds, PARTS, hold=True)
            panel.plot([part * width_s / size for part in range(PARTS)], values, **_style(k, each.name))
    _finish(axes, asked)
    for records in {each.backpressure.max_backlog for each in done}:
        axes[2].axhline(records, color="0.4", linewidth=0.8)
        axes[2].annotate("max_backlog", (1, records), xycoords=("axes fraction", "data"), ha="right", va="bottom", color="0.4")


def _prepare(axes: Sequence[Axes], asked: Timed, titles: Sequence[str]) -> None:
    """What each panel shows, and when something happens."""
    _, size = _unit(asked.seconds)
    for panel, title in zip(axes, titles, strict=True):
        panel.set_ylabel(title)
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
        if asked.event:
            panel.axvspan(asked.since_s / size, asked.until_s / size, color="0.9")


def _finish(axes: Sequence[Axes], asked: Timed) -> None:
    """The bounds of what is drawn."""
    unit, size = _unit(asked.seconds)
    for panel in axes:
        panel.set_ylim(bottom=0)
        panel.set_xlim(0, asked.seconds / size)
    axes[-1].set_xlabel(unit)


def _style(k: int, name: str) -> dict[str, Any]:
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": DASHES[k % len(DASHES)], "linewidth": 1.4, "label": name}


def _unit(seconds: float) -> tuple[str, float]:
    return ("hours", 3600.0) if seconds >= 2 * 3600 else ("minutes", 60.0)
