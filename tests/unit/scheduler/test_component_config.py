"""A configuration file takes effect, or is refused with the path of the field."""

import re
from typing import Any

import pytest
from tests.support.scheduler_world import world

from grange.api.kinds import SERVICE
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler import plugins
from grange.scheduler.component_config import Configured, configure, load
from grange.scheduler.framework import Profile
from grange.scheduler.plugin_args import ConfigurationError
from grange.scheduler.podinfo import PodInfo
from grange.sim import builders

WHOLE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 16
leaderElection: {leaderElect: true, resourceName: kube-scheduler}
clientConnection: {kubeconfig: /etc/kubernetes/scheduler.conf, qps: 100}
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
percentageOfNodesToScore: 30
profiles:
- schedulerName: default-scheduler
- schedulerName: packed
  percentageOfNodesToScore: 0
  plugins:
    multiPoint:
      enabled:
      - {name: ImageLocality, weight: 5}
      disabled:
      - {name: NodePorts}
      - {name: EBSLimits}
    score:
      disabled:
      - {name: PodTopologySpread}
      - {name: NodeResourcesBalancedAllocation}
      enabled:
      - {name: NodeResourcesFit, weight: 4}
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy:
        type: MostAllocated
        resources:
        - {name: cpu, weight: 2}
"""


def of(**profile: Any) -> Configured:
    return configure(document(profiles=[profile]))


def document(**more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **more,
    }


def profiles(found: Configured) -> dict[str, Profile]:
    return {
        name: found.profiles.of(PodInfo.of(builders.pod("p", schedulerName=name)))
        for name in found.profiles.names
    }


def test_a_whole_file_is_read() -> None:
    found = load(WHOLE)
    assert found.config.scheduler_names == {"default-scheduler", "packed"}
    assert found.config.queue.backoff_initial_s == 2
    assert found.config.queue.backoff_max_s == 20
    usual, packed = profiles(found)["default-scheduler"], profiles(found)["packed"]
    assert (usual.percentage, packed.percentage) == (30, 0)
    assert [*usual.plugins] == [plugin.name for plugin in plugins.DEFAULT]
    assert "NodePorts" not in packed.plugins
    weights = {name: weight for name, _, weight in packed.scores}
    assert weights["NodeResourcesFit"] == 4
    assert weights["ImageLocality"] == 5
    assert "NodeResourcesBalancedAllocation" not in weights
    assert [weight for name, _, weight in packed.topology if name == "PodTopologySpread"] == [0]


def test_an_empty_profile_is_the_default_one() -> None:
    found = configure(document())
    assert found.config.scheduler_names == {"default-scheduler"}
    made = profiles(found)["default-scheduler"]
    assert made.percentage == 100
    assert [(name, weight) for name, _, weight in made.scores] == [
        (name, weight) for name, _, weight in Profile(plugins.DEFAULT).scores
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"profiles": None},
        {"profiles": [{"plugins": None, "pluginConfig": None, "schedulerName": None}]},
        {"profiles": [{"plugins": {"score": None, "filter": {"enabled": None}}}]},
        {"profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": None}]}]},
        {"profiles": [{"pluginConfig": [{"name": "NodeName", "args": None}]}]},
    ],
)
def test_null_is_absent(given: dict[str, Any]) -> None:
    found = configure(document(**given))
    assert [*profiles(found)["default-scheduler"].plugins] == [
        item.name for item in plugins.DEFAULT
    ]


@pytest.mark.parametrize(
    ("point", "names"),
    [
        ("preFilter", ("NodeResourcesFit", "NodePorts", "PodTopologySpread", "NodeAffinity")),
        ("filter", ("NodeName", "InterPodAffinity", "VolumeBinding")),
        ("preScore", ("TaintToleration", "NodeResourcesBalancedAllocation")),
        ("score", ("ImageLocality", "PodTopologySpread", "FGD")),
        ("reserve", ("VolumeBinding", "GpuShare")),
        ("preBind", ("VolumeBinding",)),
        ("postFilter", ("DefaultPreemption",)),
    ],
)
def test_plugins_may_be_enabled_where_existing_files_do(point: str, names: tuple[str, ...]) -> None:
    enabled = [{"name": name} for name in names]
    found = of(plugins={point: {"disabled": [{"name": "*"}], "enabled": enabled}})
    assert set(names) <= profiles(found)["default-scheduler"].plugins.keys()


def test_profiles_number_signatures_apart() -> None:
    """The queue shares answers between pods of one number, so no two profiles may use the same."""
    found = configure(document(profiles=[{"schedulerName": "a"}, {"schedulerName": "b"}]))
    pods = [PodInfo.of(builders.pod(f"p{name}", schedulerName=name)) for name in ("a", "b", "a")]
    one, other, again = (found.profiles.sign(pod) for pod in pods)
    assert one == again != other


POINTS = "profiles[0].plugins"
FIT = "profiles[0].pluginConfig[0].args"
STRATEGY = f"{FIT}.scoringStrategy"
AFFINITY = f"{FIT}.addedAffinity"
MUST = "requiredDuringSchedulingIgnoredDuringExecution"


def fit(**args: Any) -> dict[str, Any]:
    return {"profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": args}]}]}


def strategy(**given: Any) -> dict[str, Any]:
    return fit(scoringStrategy=given)


def added(**given: Any) -> dict[str, Any]:
    args = {"addedAffinity": given}
    return {"profiles": [{"pluginConfig": [{"name": "NodeAffinity", "args": args}]}]}


def args(name: str, **given: Any) -> dict[str, Any]:
    return {"profiles": [{"pluginConfig": [{"name": name, "args": given}]}]}


def at(point: str, plugin: str, **more: int) -> dict[str, Any]:
    return {"profiles": [{"plugins": {point: {"enabled": [{"name": plugin, **more}]}}}]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"apiVersion": "v1"}, "apiVersion: must be kubescheduler.config.k8s.io/v1"),
        ({"kind": "Pod"}, "kind: must be KubeSchedulerConfiguration"),
        ({"profile": []}, "profile: unknown field"),
        ({"profiles": []}, "profiles: needs at least one"),
        ({"profiles": [{"scheduler": "x"}]}, "profiles[0].scheduler: unknown field"),
        ({"profiles": [{"schedulerName": "A b"}]}, "profiles[0].schedulerName: "),
        ({"profiles": [{}, {}]}, "profiles[1].schedulerName: another profile is called default"),
        ({"percentageOfNodesToScore": 101}, "percentageOfNodesToScore: must be 0 to 100"),
        ({"podMaxBackoffSeconds": 0.5}, "podMaxBackoffSeconds: must not be less than"),
        ({"podInitialBackoffSeconds": "1s"}, "podInitialBackoffSeconds: Expected `float`"),
        ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds: must be more than 0"),
        ({"podMaxBackoffSeconds": 1e300}, "podMaxBackoffSeconds: must be more than 0 and at most"),
        ({"extenders": [{}]}, "extenders: there are none here"),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "Nice"}]}}}]},
            "profiles[0].plugins.score.enabled[0].name: no plugin is called 'Nice'; there are",
        ),
        (
            {"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "Nice"}]}}}]},
            "profiles[0].plugins.multiPoint.disabled[0].name: no plugin is called 'Nice'",
        ),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "A", "weight": -1}]}}}]},
            "profiles[0].plugins.score.enabled[0].weight: must be 0 to",
        ),
        (
            {"profiles": [{"plugins": {"multiPoint": {"disabled": [{"name": "*"}]}}}]},
            "profiles[0].plugins: a profile needs exactly one plugin that sorts",
        ),
        (
            {"profiles": [{"plugins": {"bind": {"disabled": [{"name": "*"}]}}}]},
            "profiles[0].plugins: a profile needs exactly one plugin that sorts and one that binds",
        ),
        (at("score", "NodeName"), f"{POINTS}.score.enabled[0].name: NodeName does not score"),
        (
            at("filter", "ImageLocality"),
            f"{POINTS}.filter.enabled[0].name: ImageLocality does not filter",
        ),
        (at("permit", "NodeName"), f"{POINTS}.permit.enabled[0].name: NodeName does not permit"),
        (
            at("postBind", "DefaultBinder"),
            f"{POINTS}.postBind.enabled[0].name: DefaultBinder does not act",
        ),
        (
            at("queueSort", "FGD"),
            f"{POINTS}.queueSort.enabled[0].name: FGD does not sort the queue",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "Nice"}]}]},
            "profiles[0].pluginConfig[0].name: no plugin is called 'Nice'",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "NodeName", "args": {"a": 1}}]}]},
            f"{FIT}: NodeName takes no arguments",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "NodeName"}, {"name": "NodeName"}]}]},
            "profiles[0].pluginConfig[1].name: NodeName is there twice",
        ),
        (fit(kind="NodeAffinityArgs"), f"{FIT}.kind: must be NodeResourcesFitArgs"),
        (fit(apiVersion="v1beta3"), f"{FIT}.apiVersion: must be"),
        (args("NodeAffinity", apiVersion="v1beta3"), f"{FIT}.apiVersion: must be"),
        (fit(ignoredResources=["a b"]), f"{FIT}.ignoredResources[0]: "),
        (fit(ignoredResourceGroups=["a/b"]), f"{FIT}.ignoredResourceGroups[0]: "),
        (strategy(type="Best"), f"{STRATEGY}.type: must be LeastAllocated, MostAllocated or"),
        (
            at("filter", "NodePorts", weight=3),
            f"{POINTS}.filter.enabled[0].weight: counts at score and multiPoint only",
        ),
        (
            at("preScore", "NodeResourcesFit", weight=1),
            f"{POINTS}.preScore.enabled[0].weight: counts at score and multiPoint only",
        ),
        (
            strategy(resources=[{"name": "cpu", "weight": 101}]),
            f"{STRATEGY}.resources[0].weight: must be 1 to 100",
        ),
        (
            strategy(resources=[{"name": "cpu", "weight": "2"}]),
            f"{STRATEGY}.resources[0].weight: Expected `int`, got `str`",
        ),
        (strategy(resources=[{"name": "x y!"}]), f"{STRATEGY}.resources[0].name: name part must"),
        (
            args("NodeResourcesBalancedAllocation", resources=[{"name": "x y!"}]),
            f"{FIT}.resources[0].name: name part must",
        ),
        (strategy(resources=[{"weight": 2}]), f"{STRATEGY}.resources[0].name: required"),
        (
            strategy(resources=[{"name": "cpu"}, {"name": "cpu"}]),
            f"{STRATEGY}.resources[1].name: cpu is there twice",
        ),
        (
            strategy(type="RequestedToCapacityRatio"),
            f"{STRATEGY}.requestedToCapacityRatio: required with",
        ),
        (
            strategy(
                type="RequestedToCapacityRatio",
                requestedToCapacityRatio={
                    "shape": [{"utilization": 9, "score": 1}, {"utilization": 9, "score": 2}]
                },
            ),
            f"{STRATEGY}.requestedToCapacityRatio.shape[1].utilization: must be more than",
        ),
        (
            strategy(
                type="RequestedToCapacityRatio",
                requestedToCapacityRatio={"shape": [{"utilization": 9, "score": 11}]},
            ),
            f"{STRATEGY}.requestedToCapacityRatio.shape[0].score: must be 0 to 10",
        ),
        (
            args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 2}]),
            f"{FIT}.resources[0].weight: must be 1",
        ),
        (
            args("PodTopologySpread", defaultConstraints=[{"topologyKey": "a", "maxSkew": 1}]),
            f"{FIT}.defaultConstraints[0].whenUnsatisfiable: required",
        ),
        (
            args(
                "PodTopologySpread",
                defaultConstraints=[
                    {"topologyKey": "a", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
                ],
            ),
            f"{FIT}.defaultConstraints: must be empty unless",
        ),
        (args("PodTopologySpread", defaultingType="None"), f"{FIT}.defaultingType: must be System"),
        (
            args("InterPodAffinity", hardPodAffinityWeight=101),
            f"{FIT}.hardPodAffinityWeight: must be 0 to 100",
        ),
        (
            added(**{MUST: {"nodeSelectorTerms": [{"matchExpressions": [{"operator": "In"}]}]}}),
            f"{AFFINITY}.{MUST}.nodeSelectorTerms[0].matchExpressions[0].key: ",
        ),
        (
            added(
                **{
                    MUST: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Near"}]}
                        ]
                    }
                }
            ),
            f"{AFFINITY}.{MUST}.nodeSelectorTerms[0].matchExpressions[0].operator: ",
        ),
        (added(required=[]), f"{AFFINITY}.required: unknown field"),
        (
            added(
                preferredDuringSchedulingIgnoredDuringExecution=[{"weight": 0, "preference": {}}]
            ),
            f"{AFFINITY}.preferredDuringSchedulingIgnoredDuringExecution[0].weight: ",
        ),
    ],
)
def test_what_is_wrong_is_named_by_its_path(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)) as refused:
        configure(document(**given))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "exactly one document"),
        ("a: 1\n---\nb: 2", "exactly one document, there are 2"),
        ("a: [", "line 1|column"),
        ("- a", "object|mapping"),
        ("a: &x [*x]", "line 1|alias|recurs|itself"),
    ],
)
def test_what_is_no_such_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load(text)


def test_the_largest_weights_of_all_plugins_together_are_taken() -> None:
    scoring = [item.name for item in plugins.DEFAULT if item.score or item.topology]
    enabled = [{"name": name, "weight": 10_000} for name in scoring]
    made = profiles(of(plugins={"score": {"enabled": enabled}}))["default-scheduler"]
    assert {weight for _, _, weight in made.scores} == {10_000}


async def test_pods_pick_their_profile_by_scheduler_name(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """One packs, the other spreads, on the same nodes; pods of a third are not ours."""
    found = load(WHOLE)
    async with world(clock, rng, log) as made:
        await made.start_scheduler(found.config, profile=found.profiles)
        await made.add_nodes("one", "two", capacity={"cpu": "4", "memory": "4Gi", "pods": 50})
        for number in range(4):
            name = f"p{number}"
            await made.add_pods(name, requests={"cpu": "500m"}, schedulerName="packed")
        await made.add_pods("stranger", schedulerName="elsewhere")
        await made.settle()
        assert (await made.pods()) == {
            **dict.fromkeys([f"p{n}" for n in range(4)], "one"),
            "stranger": "",
        }
        await made.add_pods("q", requests={"cpu": "500m"}, schedulerName="default-scheduler")
        await made.settle()
        assert (await made.pods())["q"] == "two"


async def test_a_profile_has_spread_defaults_of_its_own(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Pods of a Service at most one apart by host, where the default would only prefer that."""
    constraint = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    spread = {"defaultingType": "List", "defaultConstraints": [constraint]}
    found = of(pluginConfig=[{"name": "PodTopologySpread", "args": spread}])
    service = {
        "metadata": {"name": "s"},
        "spec": {"selector": {"app": "s"}, "ports": [{"port": 1}]},
    }
    async with world(clock, rng, log) as made:
        await made.start_scheduler(found.config, profile=found.profiles)
        await made.client.create(SERVICE, service, "default")
        await made.add_nodes("one", capacity={"cpu": "8", "memory": "8Gi", "pods": 9})
        await made.add_nodes("two", capacity={"cpu": "1", "memory": "8Gi", "pods": 9})
        for number in range(3):
            await made.add_pods(f"p{number}", labels={"app": "s"}, requests={"cpu": "800m"})
            await made.settle()
        assert sorted((await made.pods()).values()) == ["one", "one", "two"]
        await made.add_pods("p3", labels={"app": "s"}, requests={"cpu": "800m"})
        await made.settle()
        # A third on node one would be two more than on node two, which is full.
        assert sorted((await made.pods()).values()) == ["", "one", "one", "two"]
        assert "topology spread" in await made.message("p3")
