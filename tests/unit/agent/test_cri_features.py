"""A node whose containers run by CRI shows what fields of pods need, in their words."""

from pathlib import Path

from grange.agent.config import NodeConfig
from grange.agent.runtimes.cri.cri_config import CriConfig
from grange.agent.runtimes.cri.cri_runtime import CriRuntime
from grange.api.pod_fields import Feature
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Inline


def test_limits_and_isolation_are_features_that_fields_need(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    config = CriConfig(tmp_path, tmp_path / "socket")
    runtime = CriRuntime(config, clock=clock, log=log, offload=Inline())
    node = NodeConfig("a", {}, isolation=runtime.isolation, limits=runtime.limits, user=0)
    assert node.features >= {Feature.LIMITS, Feature.NAMESPACES}
