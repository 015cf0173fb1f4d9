"""``grange simulate``: replay a trace under one or several policies, and compare."""

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from grange.api import codec
from grange.app.simulate import openb, plot, policies, report, trace_manifests
from grange.app.simulate.replay import Replay, ReplayRun, by_load, by_time, inflation
from grange.app.simulate.trace import Arrival, Trace, TraceError, kinds
from grange.base.clock import Clock
from grange.base.plurals import counted
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.placement.fragmentation import TargetWorkload

_QUIET_S = 2.0
_EACH_S = 0.5


@click.command(cls=Command, examples=("grange simulate --nodes nodes.yaml --pods pods.yaml",))
@click.option(
    "--nodes",
    "nodes_file",
    type=click.Path(path_type=Path),
    required=True,
    help="Nodes: manifests, or a .csv file in openb's form.",
)
@click.option(
    "--pods",
    "pods_file",
    type=click.Path(path_type=Path),
    required=True,
    help="Pods: manifests, or a .csv file in openb's form.",
)
@click.option(
    "--policy",
    "words",
    multiple=True,
    default=(policies.DEFAULT,),
    show_default=True,
    help=f"What to compare, repeated or with commas: {', '.join(policies.NAMES)}, or a scheduler "
    "configuration file.",
)
@click.option(
    "--inflate",
    type=click.IntRange(1, 1000),
    default=None,
    metavar="PERCENT",
    help="Draw pods at random, never to leave, until they ask for so much of the cluster.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**31), default=1, show_default=True, help="Of the first run."
)
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="So many runs."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print the results.",
)
@click.option("--plot", "plot_file", type=click.Path(path_type=Path), help="Draw an SVG there.")
@click.pass_obj
def command(  # noqa: PLR0913  click hands every option over by name
    env: Environment,
    *,
    nodes_file: Path,
    pods_file: Path,
    words: tuple[str, ...],
    inflate: int | None,
    seed: int,
    seeds: int,
    output: str,
    plot_file: Path | None,
) -> None:
    """Replay a trace through the real scheduler in virtual time, and compare policies."""
    names = policies.chosen(words)
    if plot_file is not None and plot_file.suffix.lower() != ".svg":
        raise click.UsageError(f"--plot {plot_file}: an SVG is drawn: name it {plot_file.stem}.svg")
    trace = read(nodes_file, pods_file)
    if plot_file is not None and not plot_file.absolute().parent.is_dir():
        raise TraceError(f"--plot {plot_file}: there is no directory {plot_file.parent}")
    pods = [item.pod for item in trace.arrivals]
    workload = kinds(pods)
    progress = _Progress(env)
    runs = []
    for name in names:
        for number in range(seed, seed + seeds):
            configured = policies.profile(name, workload, number)
            replay = Replay(trace, configured, TargetWorkload(workload), env.log)
            run = ReplayRun(name, number, replay.resource)
            if inflate is None:
                arrivals: Iterator[Arrival] = iter(trace.arrivals)
                sample = by_time(trace.arrivals)
            else:
                arrivals = inflation(trace, number, inflate / 100)
                sample = by_load()
            started = env.clock.monotonic()
            label = f"{name}, seed {number}" if seeds > 1 else name
            replay.play(progress.count(arrivals, label), run, sample)
            run.elapsed_s = env.clock.monotonic() - started
            runs.append(run)
    progress.end()
    if plot_file is not None:
        title = f"{pods_file.name} on {counted(len(trace.nodes), 'node')}"
        _write(plot_file, plot.draw(runs, title, by_load=inflate is not None))
    if output == "json":
        document = report.as_document(runs, nodes=len(trace.nodes))
        click.echo(codec.encode(document).decode())
    else:
        click.echo(report.as_table(runs))


def read(nodes_file: Path, pods_file: Path) -> Trace:
    """The trace of two files.

    Raises:
        TraceError: one of them cannot be used.
    """
    by_csv = {True: openb, False: trace_manifests}
    nodes = by_csv[nodes_file.suffix.lower() == ".csv"].read_nodes(nodes_file)
    pods = by_csv[pods_file.suffix.lower() == ".csv"].read_pods(pods_file)
    return Trace(nodes, pods)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise TraceError(f"--plot {path}: {error.strerror}") from error


class _Progress:
    """Reports progress on standard error, once it takes longer than two seconds."""

    def __init__(self, env: Environment) -> None:
        self._clock: Clock = env.clock
        self._live = env.interactive
        self._started = self._next = env.clock.monotonic()
        self._label = ""
        self._shown = False

    def count(self, arrivals: Iterator[Arrival], label: str) -> Iterator[Arrival]:
        """The arrivals, counted as they go by."""
        for number, arrival in enumerate(arrivals):
            if number % 64 == 0:
                self._report(label, number)
            yield arrival

    def _report(self, label: str, number: int) -> None:
        now = self._clock.monotonic()
        if now - self._started < _QUIET_S or now < self._next:
            return
        if self._live:
            self._next = now + _EACH_S
            click.echo(f"\r\033[K{label}: {number} pods", nl=False, err=True)
            self._shown = True
        elif label != self._label:
            click.echo(f"simulating {label}", err=True)
        self._label = label
        sys.stderr.flush()

    def end(self) -> None:
        """Leave no half line behind."""
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)
