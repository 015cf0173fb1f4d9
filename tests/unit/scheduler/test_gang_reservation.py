"""Which nodes are kept for a gang whose members refuse each other's company, or want host ports."""

from typing import Any

import pytest
from tests.unit.scheduler.gangworld import Bench, names

from grange.base.rng import Stream

APART: dict[str, Any] = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "x"}},
            }
        ]
    }
}
PORT = [
    {
        "name": "c",
        "command": ["true"],
        "ports": [{"containerPort": 80, "hostPort": 80}],
        "resources": {"requests": {"cpu": "1500m"}},
    }
]


@pytest.mark.parametrize("rule", [{"affinity": APART}, {"containers": PORT}], ids=["apart", "port"])
def test_small_pods_cannot_starve_a_gang_of_one_pod_a_host(rule: dict[str, Any]) -> None:
    """Two nodes have the amounts for all four members; four nodes must be kept all the same."""
    bench, rng = Bench(overtakes=3), Stream(1)
    bench.nodes(*names("n", 4), capacity={"cpu": "4", "pods": "50"})
    live = names("s", 16)
    bench.pods(*live, requests={"cpu": "1"})
    bench.run(1)
    bench.group("g", 4)
    bench.now += 1
    options = rule if "containers" in rule else {"requests": {"cpu": "1500m"}, **rule}
    bench.pods(*names("g", 4), gang="g", labels={"app": "x"}, **options)
    bench.run(1)
    for number in range(16, 216, 2):
        bench.now += 1
        more = [f"s{number}", f"s{number + 1}"]
        bench.pods(*more, requests={"cpu": "1"})
        live = [*live, *more]
        bench.run(0)
        running = [name for name in live if name in bench.where]
        for name in rng.shuffled(running)[:2]:
            bench.gone(name)
            live.remove(name)
        bench.run(0)
        if "g0" in bench.where:
            break
    assert len({bench.where.get(name) for name in names("g", 4)} - {None}) == 4
