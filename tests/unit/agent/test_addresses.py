"""Addresses: one each, stable, inside the range."""

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from grange.agent.addresses import (
    AddressPool,
    AddressTakenError,
    NoAddressLeftError,
    default_range,
    service_range,
)
from grange.api.pod_addresses import fixed_addresses

UIDS = st.sampled_from([f"pod-{number}" for number in range(12)])


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_a_derived_range_is_loopback_and_not_the_machine_s_own(identity: str) -> None:
    network = default_range(identity)
    assert network.subnet_of(IPv4Network("127.0.0.0/8"))
    assert IPv4Address("127.0.0.1") not in network
    assert default_range(identity) == network


def test_ranges_of_different_data_directories_mostly_differ() -> None:
    assert len({default_range(f"/data/{number}") for number in range(50)}) >= 40


@given(st.text(), st.text())
@settings(max_examples=100, deadline=None)
def test_no_pod_gets_an_address_of_a_service(one: str, other: str) -> None:
    services = service_range(one)
    assert services.subnet_of(IPv4Network("127.0.0.0/8"))
    assert not services.overlaps(default_range(one))
    assert not services.overlaps(default_range(other))


def test_a_pod_asks_first_for_the_same_address() -> None:
    network = IPv4Network("127.5.0.0/16")
    assert AddressPool(network).allocate("a") == AddressPool(network).allocate("a")


def test_wanted_address_is_given_while_it_is_free() -> None:
    pool = AddressPool(IPv4Network("127.5.0.0/17"))
    assert pool.allocate("a", "127.5.64.7") == "127.5.64.7"
    assert pool.allocate("a", "127.5.64.8") == "127.5.64.7"  # it keeps the one that it has
    with pytest.raises(AddressTakenError, match=r"127\.5\.64\.7: pod a has it"):
        pool.allocate("b", "127.5.64.7")
    pool.release("a")
    assert pool.allocate("b", "127.5.64.7") == "127.5.64.7"


def test_wanted_address_outside_the_range_has_no_effect() -> None:
    pool = AddressPool(IPv4Network("127.5.0.0/17"))
    plain = AddressPool(IPv4Network("127.5.0.0/17")).allocate("a")
    for wanted in ("10.0.0.7", "127.6.0.7", "127.5.0.0", "127.5.127.255"):
        assert pool.allocate("a", wanted) == plain
        pool.release("a")
    machine = AddressPool(IPv4Network("127.0.0.0/24"))
    with pytest.raises(AddressTakenError, match="the machine uses it itself"):
        machine.allocate("a", "127.0.0.53")


def test_other_pods_get_fixed_addresses_last() -> None:
    network = IPv4Network("127.5.0.0/27")
    fixed = {str(IPv4Address(number)) for number in fixed_addresses(network)}
    pool = AddressPool(network)
    given = [pool.allocate(str(number)) for number in range(30)]
    assert len(set(given)) == 30
    assert set(given[:15]).isdisjoint(fixed)
    assert set(given[15:]) == fixed


def test_addresses_that_machines_use_are_not_given_out() -> None:
    pool = AddressPool(IPv4Network("127.0.0.0/26"))
    given_out = {pool.allocate(str(number)) for number in range(60)}
    assert not given_out & {"127.0.0.0", "127.0.0.1", "127.0.0.53", "127.0.0.63"}


def test_a_full_range_is_an_error() -> None:
    pool = AddressPool(IPv4Network("127.5.0.0/30"))
    pool.allocate("a")
    pool.allocate("b")
    with pytest.raises(NoAddressLeftError, match="all 2 pod addresses"):
        pool.allocate("c")
    pool.release("a")
    pool.allocate("c")


@pytest.mark.parametrize("network", ["10.0.0.0/16", "127.0.0.0/31", "127.0.0.1/32"])
def test_an_unusable_range_is_refused(network: str) -> None:
    with pytest.raises(ValueError, match=network.partition("/")[0]):
        AddressPool(IPv4Network(network))


class Pool(RuleBasedStateMachine):
    """Never the same address for two, never another for the same."""

    def __init__(self) -> None:
        super().__init__()
        self.network = IPv4Network("127.7.0.0/28")
        self.pool = AddressPool(self.network)
        self.expected: dict[str, str] = {}

    @rule(uid=UIDS)
    def allocate(self, uid: str) -> None:
        address = self.pool.allocate(uid)
        assert self.expected.setdefault(uid, address) == address

    @rule(uid=UIDS)
    def release(self, uid: str) -> None:
        self.pool.release(uid)
        self.expected.pop(uid, None)

    @rule()
    def restart(self) -> None:
        self.pool = AddressPool(self.network)
        for uid, address in self.expected.items():
            assert self.pool.adopt(uid, address)

    @rule(uid=UIDS, other=UIDS)
    def adopt_what_is_taken(self, uid: str, other: str) -> None:
        if uid in self.expected and other not in self.expected:
            assert not self.pool.adopt(other, self.expected[uid])

    @invariant()
    def no_one_shares(self) -> None:
        assert len(set(self.expected.values())) == len(self.expected)
        assert all(IPv4Address(item) in self.network for item in self.expected.values())


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


def test_excluded_address_goes_to_no_pod() -> None:
    pool = AddressPool(IPv4Network("127.5.0.0/30"))
    first = pool.allocate("uid-1")
    pool.exclude(first)
    assert pool.allocate("uid-1") != first
    pool.exclude(first)  # of no pod
    with pytest.raises(NoAddressLeftError):
        pool.allocate("uid-2")
    with pytest.raises(AddressTakenError, match="the machine uses it itself"):
        pool.allocate("uid-2", first)
