"""A pod's priority is its class's, and classes keep the order that they promise."""

import pytest
from tests.unit.apiserver.server import PODS, TABLE, Server, pod

from grange.api.kinds.priorityclass import SYSTEM
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def ranked(name: str, value: int, **more: object) -> Document:
    return {"metadata": {"name": name}, "value": value, **more}


async def spec_of(server: Server, name: str, **spec: object) -> Document:
    made = await server.made(PODS, pod(name, **spec))
    found: Document = made["spec"]
    return {key: found.get(key) for key in ("priorityClassName", "priority", "preemptionPolicy")}


async def test_a_pod_gets_the_priority_of_its_class(server: Server) -> None:
    await server.made(CLASSES, ranked("urgent", 100))
    await server.made(CLASSES, ranked("patient", 50, preemptionPolicy="Never"))
    for name, value, policy in (
        ("urgent", 100, "PreemptLowerPriority"),
        ("patient", 50, "Never"),
        ("system-node-critical", 2_000_001_000, "PreemptLowerPriority"),
    ):
        given = await spec_of(server, f"pod-{name}", priorityClassName=name)
        assert given == {
            "priorityClassName": name,
            "priority": value,
            "preemptionPolicy": policy,
        }


async def test_an_unknown_class_is_refused_by_name(server: Server) -> None:
    answer = await server.create(PODS, pod(priorityClassName="absent"))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert "no PriorityClass with name absent was found" in answer.message


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"priorityClassName": "urgent", "priority": 7}, "spec.priority is 100"),
        ({"priority": 7}, "spec.priority is 0"),
        ({"priorityClassName": "urgent", "preemptionPolicy": "Never"}, "spec.preemptionPolicy is"),
        ({"preemptionPolicy": "Never"}, "spec.preemptionPolicy is"),
    ],
)
async def test_a_priority_of_ones_own_is_refused(
    server: Server, spec: Document, field: str
) -> None:
    """Otherwise anybody could outrank everybody."""
    await server.made(CLASSES, ranked("urgent", 100))
    answer = await server.create(PODS, pod(**spec))
    assert answer.code == 403
    assert field in answer.message
    assert "spec.priorityClassName" in answer.message


async def test_a_priority_that_agrees_is_fine(server: Server) -> None:
    await server.made(CLASSES, ranked("urgent", 100))
    assert await spec_of(server, "a", priorityClassName="urgent", priority=100)
    assert (await spec_of(server, "b", priority=0))["priority"] == 0


async def test_what_is_no_text_is_left_to_the_schema(server: Server) -> None:
    answer = await server.create(PODS, pod(priorityClassName=7))
    assert (answer.code, answer.fields) == (422, ["spec.priorityClassName"])


async def test_the_default_class_is_for_pods_that_name_none(server: Server) -> None:
    assert (await spec_of(server, "before"))["priority"] == 0
    await server.made(CLASSES, ranked("usual", 10, globalDefault=True))
    assert await spec_of(server, "during") == {
        "priorityClassName": "usual",
        "priority": 10,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    await server.patch(f"{CLASSES}/usual", {"globalDefault": False})
    assert (await spec_of(server, "after"))["priority"] == 0


async def test_there_is_one_default_class(server: Server) -> None:
    await server.made(CLASSES, ranked("usual", 10, globalDefault=True))
    answer = await server.create(CLASSES, ranked("other", 11, globalDefault=True))
    assert answer.code == 403
    assert "usual is the default already" in answer.message
    assert (await server.patch(f"{CLASSES}/usual", {"description": "still"})).code == 200
    await server.delete(f"{CLASSES}/usual")
    assert (await server.create(CLASSES, ranked("other", 11, globalDefault=True))).code == 201
    assert (await spec_of(server, "p"))["priorityClassName"] == "other"


async def test_a_refused_default_is_no_default(server: Server) -> None:
    answer = await server.create(CLASSES, ranked("much", 2_000_000_000, globalDefault=True))
    assert (answer.code, answer.fields) == (422, ["value"])
    assert (await spec_of(server, "p"))["priority"] == 0


async def test_a_new_server_finds_the_default(
    server: Server, clock: Clock, rng: Stream, log: Logger
) -> None:
    await server.made(CLASSES, ranked("usual", 10, globalDefault=True))
    successor = Server(clock=clock, rng=rng.fork("next"), log=log, store=server.store)
    await successor.application.bootstrap()
    assert (await spec_of(successor, "p"))["priority"] == 10


async def test_classes_of_the_system_are_there_and_stay(server: Server) -> None:
    assert (await server.get(CLASSES)).names == sorted(SYSTEM)
    for name, (value, _) in SYSTEM.items():
        assert (await server.get(f"{CLASSES}/{name}")).body["value"] == value
        assert (await server.delete(f"{CLASSES}/{name}")).code == 403


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        (ranked("much", 1_000_000_001), ["value"]),
        (ranked("system-mine", 1), ["metadata.name"]),
        (ranked("odd", 1, preemptionPolicy="Perhaps"), ["preemptionPolicy"]),
    ],
)
async def test_a_class_must_be_in_order(
    server: Server, document: Document, fields: list[str]
) -> None:
    answer = await server.create(CLASSES, document)
    assert (answer.code, answer.fields) == (422, fields)


async def test_what_pods_carry_may_not_change(server: Server) -> None:
    await server.made(CLASSES, ranked("urgent", 100))
    for change in ({"value": 101}, {"preemptionPolicy": "Never"}):
        answer = await server.patch(f"{CLASSES}/urgent", change)
        assert (answer.code, answer.fields) == (422, [*change])
    assert (await server.patch(f"{CLASSES}/urgent", {"description": "very"})).code == 200


async def test_priority_class_columns_are_those_of_kubernetes(server: Server) -> None:
    await server.made(CLASSES, ranked("urgent", 100))
    table = (await server.get(f"{CLASSES}/urgent", accept=TABLE)).body
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "Value", "Global-Default", "PreemptionPolicy", "Age"]
    assert table["rows"][0]["cells"][:4] == ["urgent", 100, False, "PreemptLowerPriority"]


GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"


def member(name: str, group: str, **spec: object) -> Document:
    made = pod(name, **spec)
    made["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": group}
    return made


async def test_members_take_the_class_of_their_group(server: Server) -> None:
    await server.made(CLASSES, ranked("urgent", 100))
    await server.made(CLASSES, ranked("usual", 10, globalDefault=True))
    group = {"metadata": {"name": "crew"}, "spec": {"minMember": 2, "priorityClassName": "urgent"}}
    await server.made(GROUPS, group)
    for name, of, spec, value in (
        ("a", "crew", {}, 100),
        ("b", "crew", {"priorityClassName": "usual"}, 10),
        ("c", "absent", {}, 10),
    ):
        made = await server.made(PODS, member(name, of, **spec))
        assert made["spec"]["priority"] == value


async def test_a_group_of_an_unknown_class_is_refused(server: Server) -> None:
    group = {"metadata": {"name": "crew"}, "spec": {"minMember": 2, "priorityClassName": "x"}}
    answer = await server.create(GROUPS, group)
    assert answer.code == 403
    assert "no PriorityClass with name x was found; create it first" in answer.message
