"""A binding to a leased node is refused unless the pod tolerates the lease, however it is sent."""

import pytest
from tests.unit.apiserver.server import NODES, PODS, Answer, Server
from tests.unit.apiserver.test_node_capacity import add_node, add_pod, bind_all, codes

from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.meta import Document
from grange.apiserver.leased_nodes import is_tolerated, lease_taint
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim import builders

CAPACITY = {"cpu": "8", "memory": "8Gi", "ephemeral-storage": "8Gi", "pods": "20"}
TAINT = {"key": MACHINE_LEASE, "value": "u1", "effect": "NoSchedule"}
OTHER = {"key": "dedicated", "value": "u1", "effect": "NoSchedule"}


async def lease(server: Server, *taints: Document) -> Answer:
    return await server.patch(f"{NODES}/n1", {"spec": {"taints": list(taints)}})


async def add_holder(server: Server, name: str, uid: str) -> None:
    document = builders.pod_document(name)
    document["spec"]["tolerations"] = [{**TAINT, "value": uid, "operator": "Equal"}]
    await server.made(PODS, document)


async def test_binding_to_a_leased_node_is_refused(server: Server) -> None:
    """As a scheduler that has not seen the lease yet sends it, right after the grant."""
    await add_node(server, **CAPACITY)
    for name in ("before", "after"):
        await add_pod(server, name)
    await add_holder(server, "holder", "u1")
    await add_holder(server, "former", "u0")
    assert (await server.bind("before", "n1")).code == 201
    await lease(server, OTHER, TAINT)
    refused = await server.bind("after", "n1")
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert refused.message == (
        'Operation cannot be fulfilled on pods "after": '
        "node n1 is leased to u1, which the pod does not tolerate"
    )
    assert (await server.get(f"{PODS}/after")).body["spec"].get("nodeName") is None
    assert codes(await bind_all(server, "after", "former", "holder")) == [409, 409, 201]
    await lease(server, OTHER)
    assert codes(await bind_all(server, "after", dryRun="All")) == [201]
    assert (await server.bind("after", "n1")).code == 201


async def test_dry_run_of_a_binding_knows_the_lease(server: Server) -> None:
    await add_node(server, **CAPACITY)
    await add_pod(server, "a")
    await lease(server, TAINT)
    assert codes(await bind_all(server, "a", dryRun="All")) == [409]


async def test_node_that_offers_nothing_yet_is_closed_as_well(server: Server) -> None:
    await server.made(NODES, {"metadata": {"name": "n1"}, "spec": {"taints": [TAINT]}})
    await add_pod(server, "a")
    assert (await server.bind("a", "n1")).code == 409
    await server.delete(f"{NODES}/n1")
    await server.made(NODES, {"metadata": {"name": "n1"}})
    assert (await server.bind("a", "n1")).code == 201


async def test_new_server_on_the_store_knows_the_leases(
    server: Server, clock: Clock, rng: Stream, log: Logger
) -> None:
    await add_node(server, **CAPACITY)
    await add_pod(server, "a")
    await lease(server, TAINT)
    second = Server(clock=clock, rng=rng.fork("second"), log=log, store=server.store)
    await second.application.bootstrap()
    assert (await second.bind("a", "n1")).code == 409


async def test_pod_created_with_its_node_is_not_refused(server: Server) -> None:
    """As with the other taints that keep pods from being scheduled: nothing was to be decided."""
    await add_node(server, **CAPACITY)
    await lease(server, TAINT)
    await add_pod(server, "pinned", on="n1")
    assert (await server.get(f"{PODS}/pinned")).body["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": MACHINE_LEASE, "value": "u1"}, True),
        ({"key": MACHINE_LEASE, "operator": "Equal", "value": "u2"}, False),
        ({"key": MACHINE_LEASE, "operator": "Equal"}, False),
        ({"key": MACHINE_LEASE, "operator": "Exists"}, True),
        ({"key": MACHINE_LEASE, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "operator": "Exists"}, False),
        ({"key": "", "operator": "Equal", "value": "u1"}, False),
    ],
)
def test_tolerations_follow_the_rules_of_kubernetes(toleration: Document, tolerated: bool) -> None:
    taint = lease_taint({"taints": [OTHER, TAINT]})
    assert taint is not None
    assert is_tolerated(taint, [toleration]) is tolerated


def test_only_the_hard_taint_of_a_lease_closes_a_node() -> None:
    assert lease_taint({"taints": [OTHER, {**TAINT, "effect": "PreferNoSchedule"}]}) is None
    assert lease_taint({}) is lease_taint(None) is None
