"""Names and addresses of members: distinct, stable, and never another job's."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import msgspec
import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.gangjob.wired_jobs import NETWORK, blocks, context, model, pod, role

from grange.api import codec
from grange.api.kinds.node import Node, NodeAddress, NodeSpec, NodeStatus
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectMeta, OwnerReference
from grange.api.names import check_dns_label
from grange.api.pod_addresses import JOB_ADDRESSES, POD_IP, fixed_addresses
from grange.controllers.gangjob.address_blocks import PORTS, AddressBlocks, loopback_network
from grange.controllers.gangjob.job_context import JobContext
from grange.controllers.gangjob.model import ServiceMode
from grange.controllers.gangjob.peers import PeerDirectory

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=4)
ROLES = ("launcher", "worker", "server", "eval")


def node(network: str, address: str = "", name: str = "n") -> Node:
    addresses = (NodeAddress("InternalIP", address),) if address else ()
    return Node(
        metadata=ObjectMeta(name=name),
        spec=NodeSpec(pod_cidr=network),
        status=NodeStatus(addresses=addresses),
    )


@pytest.mark.parametrize(
    ("networks", "found"),
    [
        ([], None),
        ([""], None),
        (["127.5.0.0/17"], IPv4Network("127.5.0.0/17")),
        (["127.5.0.0/17", "127.5.0.0/17"], IPv4Network("127.5.0.0/17")),
        (["127.5.0.0/17", "127.6.0.0/17"], None),
        (["127.5.0.0/17", ""], None),
        (["10.244.0.0/24"], None),
        (["fd00::/64"], None),
    ],
)
def test_addresses_need_one_loopback_range(networks: list[str], found: IPv4Network | None) -> None:
    assert loopback_network(map(node, networks)) == found


@pytest.mark.parametrize(
    ("addresses", "found"),
    [
        (("10.0.0.1", "10.0.0.1"), True),
        (("10.0.0.1", ""), True),
        (("10.0.0.1", "10.0.0.2"), False),
    ],
)
def test_addresses_need_one_machine(addresses: tuple[str, ...], *, found: bool) -> None:
    """Agents whose data directories have the same path on several machines have the same range."""
    nodes = [node(str(NETWORK), address) for address in addresses]
    assert (loopback_network(nodes) is not None) is found


@pytest.mark.parametrize(
    ("second", "separated"),
    [
        (("127.5.0.0/17", "10.0.0.2"), True),
        (("127.6.0.0/17", "10.0.0.1"), False),
        (("10.244.0.0/24", "10.0.0.2"), True),
    ],
)
def test_pods_of_several_machines_are_separated(
    second: tuple[str, str], *, separated: bool
) -> None:
    directory = PeerDirectory()
    directory.update([node("127.5.0.0/17", "10.0.0.1", "a"), node(*second, "b")], [])

    def on(*names: str, host_network: bool = False) -> list[str]:
        spec = {"hostNetwork": host_network}
        documents = [{"metadata": {}, "spec": {**spec, "nodeName": name}} for name in names]
        return directory.separated(msgspec.convert(item, Pod) for item in documents)

    assert on("a", "b") == (["a", "b"] if separated else [])
    assert on("a", "a") == on("a", "") == on("a", "b", host_network=True) == []


def test_names_by_kind_of_service() -> None:
    job = model(role("Worker", 2))
    peers = context(job, domain="cluster.local").peers
    assert peers.short_host("Worker", 1) == "train-worker-1.train"
    assert peers.host("Worker", 1) == "train-worker-1.train.team.svc.cluster.local"
    peers = context(replace(job, services=ServiceMode.POD)).peers
    assert peers.short_host("Worker", 1) == "train-worker-1"
    assert peers.host("Worker", 1) == "train-worker-1.team.svc"


@given(sizes=SIZES)
def test_members_have_distinct_addresses_and_ports(sizes: list[int]) -> None:
    roles = [role(name, count) for name, count in zip(ROLES, sizes, strict=False)]
    peers = context(model(*roles), blocks=blocks()).peers
    members = [(item.name, index) for item in roles for index in range(item.replicas)]
    addresses = [peers.host(*member) for member in members]
    ports = [peers.port(*member, 2222, 2222) for member in members]
    assert len(set(addresses)) == len(set(ports)) == len(members)
    assert all(int(IPv4Address(item)) in fixed_addresses(NETWORK) for item in addresses)
    assert set(ports) <= set(PORTS)
    assert {peers.port(*member, 8080, 2222) for member in members} == {8080}
    names = [peers.pod(*member) for member in members]
    assert len(set(names)) == len(members)
    assert [check_dns_label(name) for name in names] == [None] * len(members)


def test_address_is_the_same_after_scaling_and_restart() -> None:
    small = model(role("worker", 2, max_replicas=6), role("eval"))
    large = model(role("worker", 6, max_replicas=6), role("eval"))
    known = blocks()
    before = context(small, blocks=known).peers
    for after in (context(large, blocks=known).peers, context(large, blocks=blocks()).peers):
        for member in (("worker", 0), ("worker", 1), ("eval", 0)):
            assert before.host(*member) == after.host(*member)


def test_pod_asks_for_its_address() -> None:
    there = context(model(role("worker", 2)), blocks=blocks())
    found = pod(there, "worker", 1).document["metadata"]["annotations"]
    assert found[POD_IP] == there.peers.host("worker", 1)
    named = pod(context(model(role("worker", 2))), "worker", 1).document["metadata"]
    assert POD_IP not in named.get("annotations", {})


def pods_of(*contexts: JobContext) -> list[Pod]:
    """The first pod of each job."""
    return [
        codec.convert(pod(there, there.model.roles[0].name).document, Pod) for there in contexts
    ]


def test_block_is_taken_over_from_a_pod() -> None:
    """A new controller gets to know the jobs in another order, and leaves them where they are."""
    jobs = [model(role("worker", 40), role("eval", 2), uid=f"uid-{at}") for at in range(200)]
    known = blocks()
    before = [context(job, blocks=known) for job in jobs]
    directory = PeerDirectory()
    directory.update([node(str(NETWORK))], pods_of(*before))
    for there in reversed(before):
        after = directory.peers(there.model, there.peers.pod)
        for member in (("worker", 0), ("worker", 39), ("eval", 1)):
            assert after.host(*member) == there.peers.host(*member)


@pytest.mark.parametrize("text", ["", "x", "127.5.64.1", "127.5.64.1-y", "10.0.0.1-10.0.0.2"])
def test_malformed_block_is_ignored(text: str) -> None:
    (found,) = pods_of(context(model(role("worker")), blocks=blocks()))
    meta = msgspec.structs.replace(found.metadata, annotations={JOB_ADDRESSES: text})
    known = blocks()
    known.adopt(msgspec.structs.replace(found, metadata=meta))
    assert known.reserve("0b3c2b9e-uid", 1) == blocks().reserve("0b3c2b9e-uid", 1)


def test_directory_goes_by_the_nodes() -> None:
    job = model(role("worker", 2))
    there = context(job)
    directory = PeerDirectory(domain="cluster.local")

    def host() -> str:
        return directory.peers(job, there.peers.pod).host("worker", 1)

    assert host() == "train-worker-1.train.team.svc.cluster.local"
    directory.update([node(str(NETWORK))], [])
    address = host()
    assert IPv4Address(address) in NETWORK
    directory.update([node(str(NETWORK)), node(str(NETWORK))], [])
    directory.forget("of another job")
    assert host() == address
    directory.update([node(str(NETWORK)), node("10.0.0.0/24")], [])
    assert host() == "train-worker-1.train.team.svc.cluster.local"


def test_block_larger_than_the_range_is_given_out() -> None:
    """Its pods wait for addresses at the node, where the message is; nothing breaks before."""
    tiny = AddressBlocks(IPv4Network("127.5.0.0/28"))
    assert len(tiny.reserve("a", 50)) == 50


def test_addresses_of_the_machine_are_left_out() -> None:
    tiny = AddressBlocks(IPv4Network("127.0.0.0/26"))
    taken = int(IPv4Address("127.0.0.53"))
    assert all(taken not in tiny.reserve(str(number), 4) for number in range(5))


class Blocks(RuleBasedStateMachine):
    """Blocks never overlap while there is room, and stay where they are."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = AddressBlocks(IPv4Network("127.5.0.0/22"))
        self.known: dict[str, range] = {}

    @rule(uid=st.sampled_from("abcdefgh"), size=st.integers(1, 12))
    def reserve(self, uid: str, size: int) -> None:
        if uid in self.known:
            size = len(self.known[uid])
        found = self.blocks.reserve(uid, size)
        assert self.known.setdefault(uid, found) == found
        assert len(found) == size

    @rule(uid=st.sampled_from("abcdefgh"))
    def release(self, uid: str) -> None:
        self.blocks.release(uid)
        self.known.pop(uid, None)

    @rule()
    def restart(self) -> None:
        self.blocks = AddressBlocks(IPv4Network("127.5.0.0/22"))
        for uid, block in self.known.items():
            owner = OwnerReference(api_version="v1", kind="J", name="j", uid=uid, controller=True)
            text = f"{IPv4Address(block[0])}-{IPv4Address(block[-1])}"
            meta = ObjectMeta(annotations={JOB_ADDRESSES: text}, owner_references=(owner,))
            self.blocks.adopt(Pod(metadata=meta))

    @invariant()
    def are_apart(self) -> None:
        numbers = [number for block in self.known.values() for number in block]
        assert len(set(numbers)) == len(numbers)
        assert all(number in fixed_addresses(IPv4Network("127.5.0.0/22")) for number in numbers)


TestBlocks = Blocks.TestCase
