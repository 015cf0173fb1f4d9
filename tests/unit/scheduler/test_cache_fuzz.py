"""Check 34: whatever happens, the cache equals a naive model of it."""

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.snapshot_views import same

from grange.api.kinds.pod import Pod
from grange.api.selectors import Labels
from grange.placement.node_usage import IDLE, charged
from grange.scheduler.cache import Cache
from grange.scheduler.errors import CacheError
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

NAMES = st.sampled_from(["p0", "p1", "p2", "p3"])
NODES = st.sampled_from(["n0", "n1", "n2"])
ZONES = st.sampled_from(["", "z0", "z1"])
TTL_S = 5.0


class CacheMachine(RuleBasedStateMachine):
    """The model: pods by name with their node and state, and the set of live nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache(ttl_s=TTL_S)
        self.snapshot = NodeInfoSnapshot()
        self.now = 0.0
        self.pods: dict[str, Pod] = {}
        self.assumed: dict[str, float | None] = {}
        self.nodes: dict[str, str] = {}

    def fails(self, action: object, *args: object) -> bool:
        try:
            action(*args)  # type: ignore[operator]  # drawn by name
        except CacheError:
            return True
        return False

    def pod(self, name: str, node: str, size: int) -> Pod:
        return builders.pod(
            name,
            requests={"cpu": size, "example.com/gpu": size} if size else None,
            host_ports=[size] if size > 2 else [],
            nodeName=node,
        )

    @rule(name=NAMES, node=NODES, size=st.integers(0, 3))
    def assume(self, name: str, node: str, size: int) -> None:
        pod = self.pod(name, node, size)
        assert self.fails(self.cache.assume_pod, pod) == (name in self.pods)
        if name not in self.pods:
            self.pods[name] = pod
            self.assumed[name] = None

    @rule(name=NAMES)
    def finish(self, name: str) -> None:
        self.cache.finish_binding(self.pod(name, "", 0), self.now)
        if name in self.assumed:
            self.assumed[name] = self.now + TTL_S

    @rule(name=NAMES, node=NODES)
    def forget(self, name: str, node: str) -> None:
        have = self.pods.get(name)
        refused = have is not None and (have.spec.node_name != node or name not in self.assumed)
        assert self.fails(self.cache.forget_pod, self.pod(name, node, 0)) == refused
        if have is not None and not refused:
            del self.pods[name], self.assumed[name]

    @rule(name=NAMES, node=NODES, size=st.integers(0, 3))
    def add(self, name: str, node: str, size: int) -> None:
        pod = self.pod(name, node, size)
        refused = name in self.pods and name not in self.assumed
        assert self.fails(self.cache.add_pod, pod) == refused
        if not refused:
            self.pods[name] = pod
            self.assumed.pop(name, None)

    @rule(name=NAMES, size=st.integers(0, 3))
    def update(self, name: str, size: int) -> None:
        node = self.pods[name].spec.node_name if name in self.pods else "n0"
        pod = self.pod(name, node, size)
        refused = name not in self.pods or name in self.assumed
        assert self.fails(self.cache.update_pod, pod, pod) == refused
        if not refused:
            self.pods[name] = pod

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        assert self.fails(self.cache.remove_pod, self.pod(name, "", 0)) == (name not in self.pods)
        self.pods.pop(name, None)
        self.assumed.pop(name, None)

    @rule(seconds=st.sampled_from([1.0, 3.0, 6.0]))
    def sweep(self, seconds: float) -> None:
        self.now += seconds
        overdue = {
            name
            for name, deadline in self.assumed.items()
            if deadline is not None and self.now > deadline
        }
        assert {pod.metadata.name for pod in self.cache.cleanup(self.now)} == overdue
        for name in overdue:
            del self.pods[name], self.assumed[name]

    @rule(name=NODES, zone=ZONES, size=st.integers(0, 9), update=st.booleans())
    def put_node(self, name: str, zone: str, size: int, *, update: bool) -> None:
        node = builders.node(name, zone=zone, capacity={"cpu": size, "pods": 9})
        if update:
            self.cache.update_node(None, node)
        else:
            self.cache.add_node(node)
        self.nodes[name] = zone

    @rule(name=NODES)
    def remove_node(self, name: str) -> None:
        refused = self.fails(self.cache.remove_node, builders.node(name))
        assert refused == (name not in self.nodes)
        self.nodes.pop(name, None)

    @rule(name=NAMES, node=NODES)
    @precondition(lambda self: self.snapshot.generation)
    def try_out(self, name: str, node: str) -> None:
        """Trials may be left behind: the next snapshot must not show them."""
        info = PodInfo.of(self.pod(f"trial-{name}", node, 2))
        if info.uid not in self.snapshot.assumed:
            self.snapshot.assume_pod(info)

    @rule(name=NAMES, node=NODES, size=st.integers(0, 2))
    def place(self, name: str, node: str, size: int) -> None:
        """A scheduling cycle: the next update copies one entry."""
        self.cache.update_node_info_snapshot(self.snapshot)
        if name in self.pods or node not in self.nodes:
            return
        self.pods[name] = self.pod(name, node, size)
        self.assumed[name] = None
        copies = self.snapshot.copies
        self.cache.assume_pod(self.pods[name])
        self.take()
        assert self.snapshot.copies == copies + 1

    @rule(name=NAMES, size=st.integers(0, 2))
    def confirm(self, name: str, size: int) -> None:
        """The informer shows a pod where it was assumed, perhaps changed: one entry is copied."""
        self.cache.update_node_info_snapshot(self.snapshot)
        node = self.pods[name].spec.node_name if name in self.assumed else ""
        if node not in self.nodes:
            return
        self.pods[name] = self.pod(name, node, size)
        del self.assumed[name]
        copies = self.snapshot.copies
        self.cache.add_pod(self.pods[name])
        self.take()
        assert self.snapshot.copies == copies + 1

    @rule()
    def take(self) -> None:
        self.cache.update_node_info_snapshot(self.snapshot)
        assert {*self.snapshot.node_info_map} == {*self.nodes}
        for name, copy in self.snapshot.node_info_map.items():
            live = self.cache.node_info(name)
            assert live is not None
            assert same(live, copy)
            row = self.snapshot.table.rows[name]
            assert (
                self.snapshot.table.amounts("cpu", self.snapshot.table.all)[1][row]
                == copy.usage.cpu_milli
            )
            assert (
                self.snapshot.table.amounts("cpu", self.snapshot.table.all)[0][row]
                == copy.allocatable.cpu_milli
            )
            assert (
                self.snapshot.table.amounts("pods", self.snapshot.table.all)[1][row]
                == copy.usage.pods
            )
        listed = [info.name for info in self.snapshot.node_info_list]
        assert listed == self.cache.node_tree.list()

    @invariant()
    def agrees(self) -> None:
        assert self.cache.pod_count == len(self.pods)
        assert self.cache.assumed_count == len(self.assumed)
        listed = self.cache.list(Labels.parse(""))
        assert sorted(pod.metadata.name for pod in listed) == sorted(self.pods)
        assert {*self.cache.order()} == {
            *self.nodes,
            *(pod.spec.node_name for pod in self.pods.values()),
        }
        generations = []
        for name in self.cache.order():
            info = self.cache.node_info(name)
            assert info is not None
            generations.append(info.generation)
            assert (info.node is not None) == (name in self.nodes)
            usage = IDLE
            for item in info.pods:
                usage = charged(usage, item.request, item.ports)
                assert self.pods[item.pod.metadata.name].spec.node_name == name
            assert usage == info.usage
        assert generations == sorted(set(generations), reverse=True)
        assert sorted(self.cache.node_tree.list()) == sorted(self.nodes)


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_check_34_the_cache_equals_a_naive_model = CacheMachine.TestCase
