"""The policies that can be compared: short names for profiles, or a configuration file."""

from collections.abc import Sequence
from pathlib import Path

import click

from grange.api.meta import Document
from grange.app import scheduling
from grange.placement.fragmentation import PodKind
from grange.scheduler.component_config import Configured, configure
from grange.scheduler.plugin_args import API_VERSION

DEFAULT = "default"
PLUGINS = {
    "best-fit": "BestFit",
    "dot-product": "DotProduct",
    "fgd": "FGD",
    "gpu-clustering": "GpuClustering",
    "gpu-packing": "GpuPacking",
    "random": "Random",
}
NAMES = (DEFAULT, *PLUGINS)
_CHOOSES_DEVICES = "fgd"  # the others leave that to the default


def chosen(words: Sequence[str]) -> list[str]:
    """The policies that the words name, each once; words may be lists with commas.

    Raises:
        UsageError: there is no such policy, and no such file.
    """
    names = [name.strip() for word in words for name in word.split(",")]
    found = dict.fromkeys(name for name in names if name)
    for name in found:
        if name not in NAMES and not Path(name).is_file():
            raise click.UsageError(
                f"--policy {name}: no such policy; there are {', '.join(NAMES)}, or name a "
                "scheduler configuration file"
            )
    if not found:
        raise click.UsageError(f"--policy: name at least one of {', '.join(NAMES)}")
    return [*found]


def profile(name: str, workload: Sequence[PodKind], seed: int) -> Configured:
    """The configuration of a policy.

    Args:
        name: as in ``chosen``.
        workload: what FGD expects.
        seed: of random choices.

    Raises:
        SettingsError: it is a file, and that cannot be used.
    """
    if name not in NAMES:
        return scheduling.read(Path(name), "--policy")
    spec: Document = {}
    if name in PLUGINS:
        kinds = [
            {"cpu": f"{kind.cpu_milli}m", "gpuMilli": kind.gpu_milli, "number": kind.number}
            for kind in workload
        ]
        spec = {
            "plugins": {
                "score": {"disabled": [{"name": "*"}], "enabled": [{"name": PLUGINS[name]}]},
                "reserve": {"enabled": [{"name": "FGD"}] if name == _CHOOSES_DEVICES else []},
            },
            "pluginConfig": [
                {"name": "FGD", "args": {"workload": kinds}},
                {"name": "Random", "args": {"seed": seed}},
            ],
        }
    return configure(
        {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "profiles": [spec]}
    )
