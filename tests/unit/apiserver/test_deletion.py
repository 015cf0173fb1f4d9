"""Deletion is a promise to agents and controllers that hold an object: it goes when they let go."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.apiserver.server import CONFIGMAPS, NAMESPACES, PODS, Server, configmap, pod

from grange.api.kinds import BUILT_IN, CONFIGMAP, NAMESPACE, POD
from grange.api.meta import Document
from grange.apiserver.deletion import Keep, Mark, Remove, decide, is_complete
from grange.apiserver.write_options import DeleteOptions
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.store.interface import Entry
from grange.store.memory import MemoryStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVICES = "/api/v1/namespaces/default/services"
PORT = {"port": 80}


def scheduled(phase: str = "Running", grace: int = 30, **meta: object) -> Document:
    return {
        "metadata": {"name": "p", "generation": 1, **meta},
        "spec": {"nodeName": "n", "terminationGracePeriodSeconds": grace},
        "status": {"phase": phase},
    }


def mark(document: Document, **options: object) -> Document:
    outcome = decide(POD, document, DeleteOptions(**options), NOW)  # type: ignore[arg-type]  # each option has its own type
    assert isinstance(outcome, Mark)
    meta: Document = outcome.document["metadata"]
    return meta


# --- the decision ------------------------------------------------------------------------------


def test_object_that_nothing_holds_goes_at_once() -> None:
    plain: Document = {"metadata": {"name": "x"}}
    assert decide(CONFIGMAP, plain, DeleteOptions(), NOW) == Remove()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pod_goes_at_once(phase: str) -> None:
    assert decide(POD, scheduled(phase), DeleteOptions(), NOW) == Remove()


def test_pod_without_a_node_goes_at_once() -> None:
    document = scheduled("Pending")
    del document["spec"]["nodeName"]
    assert decide(POD, document, DeleteOptions(), NOW) == Remove()


def test_pod_at_work_gets_its_grace() -> None:
    meta = mark(scheduled(grace=40))
    assert meta["deletionTimestamp"] == "2026-01-01T00:00:40Z"
    assert (meta["deletionGracePeriodSeconds"], meta["generation"]) == (40, 2)


def test_deleter_may_choose_the_grace() -> None:
    assert mark(scheduled(), grace_period_s=5)["deletionTimestamp"] == "2026-01-01T00:00:05Z"
    assert decide(POD, scheduled(), DeleteOptions(grace_period_s=0), NOW) == Remove()


def test_later_delete_can_shorten_the_grace_but_not_lengthen_it() -> None:
    going = scheduled(deletionTimestamp="2026-01-01T00:00:25Z", deletionGracePeriodSeconds=30)
    assert decide(POD, going, DeleteOptions(), NOW) == Keep()
    assert decide(POD, going, DeleteOptions(grace_period_s=60), NOW) == Keep()
    shorter = mark(going, grace_period_s=10)
    assert shorter["deletionTimestamp"] == "2026-01-01T00:00:05Z"
    assert decide(POD, going, DeleteOptions(grace_period_s=0), NOW) == Remove()


def test_finalizers_hold_an_object_whatever_its_grace() -> None:
    held = scheduled(finalizers=["x.y/z"])
    meta = mark(held, grace_period_s=0)
    assert (meta["deletionGracePeriodSeconds"], meta["finalizers"]) == (0, ["x.y/z"])
    again: Document = {**held, "metadata": meta}
    assert decide(POD, again, DeleteOptions(), NOW) == Keep()


@pytest.mark.parametrize(
    ("propagation", "finalizers"), [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"])]
)
def test_propagation_becomes_a_garbage_collection_finalizer(
    propagation: str, finalizers: list[str]
) -> None:
    plain: Document = {"metadata": {"name": "x"}}
    outcome = decide(CONFIGMAP, plain, DeleteOptions(propagation=propagation), NOW)
    assert isinstance(outcome, Mark)
    assert outcome.document["metadata"]["finalizers"] == finalizers
    assert plain == {"metadata": {"name": "x"}}


def test_background_deletion_ends_foreground_waiting() -> None:
    waiting: Document = {
        "metadata": {
            "name": "x",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 0,
            "finalizers": ["foregroundDeletion"],
        }
    }
    options = DeleteOptions(propagation="Background")
    assert decide(CONFIGMAP, waiting, options, NOW) == Remove()


def test_delete_removes_the_finalizer_that_it_names() -> None:
    options = DeleteOptions(finalizer="x.y/z")
    assert decide(POD, scheduled("Failed", finalizers=["x.y/z"]), options, NOW) == Remove()
    two = mark(scheduled("Failed", finalizers=["a.b/c", "x.y/z"]), finalizer="x.y/z")
    assert (two["finalizers"], two["deletionGracePeriodSeconds"]) == (["a.b/c"], 0)
    at_work = mark(scheduled(finalizers=["x.y/z"]), finalizer="x.y/z")
    assert ("finalizers" in at_work, at_work["deletionGracePeriodSeconds"]) == (False, 30)
    going = scheduled(deletionTimestamp="2026-01-01T00:00:25Z", deletionGracePeriodSeconds=30)
    going["metadata"]["finalizers"] = ["x.y/z"]
    assert mark(going, finalizer="x.y/z") == {
        "name": "p",
        "generation": 1,
        "deletionTimestamp": "2026-01-01T00:00:25Z",
        "deletionGracePeriodSeconds": 30,
    }


def test_namespace_waits_for_the_finalizers_of_its_spec() -> None:
    space: Document = {"metadata": {"name": "x"}, "spec": {"finalizers": ["kubernetes"]}}
    outcome = decide(NAMESPACE, space, DeleteOptions(), NOW)
    assert isinstance(outcome, Mark)
    assert outcome.document["status"] == {"phase": "Terminating"}
    assert not is_complete(NAMESPACE, outcome.document)
    assert is_complete(NAMESPACE, {**outcome.document, "spec": {}})


def test_object_that_no_client_deleted_is_never_complete() -> None:
    assert not is_complete(CONFIGMAP, {"metadata": {"name": "x"}})


# --- through the API ---------------------------------------------------------------------------


async def test_scheduled_pod_stays_until_its_agent_deletes_it(server: Server) -> None:
    made = await server.made(PODS, pod())
    await server.bind("web")
    marked = await server.delete(f"{PODS}/web")
    assert marked.code == 200
    assert marked.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked.body["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}}
    gone = await server.delete(f"{PODS}/web", options)
    # Typed clients decode the answer as a Pod, whether or not it still exists.
    assert (gone.body["kind"], gone.body["metadata"]["name"]) == ("Pod", "web")
    assert (await server.get(f"{PODS}/web")).code == 404


KINDS_THAT_RETURN_WHAT_IS_DELETED = {"Pod", "Service", "ServiceAccount"}


def test_kinds_that_return_what_is_deleted() -> None:
    """As Kubernetes' OpenAPI has it: the other kinds are answered with a Status."""
    found = {info.kind for info in BUILT_IN if info.returns_deleted}
    assert found == KINDS_THAT_RETURN_WHAT_IS_DELETED & {info.kind for info in BUILT_IN}


async def test_delete_of_a_service_returns_it(server: Server) -> None:
    made = await server.made(SERVICES, {"metadata": {"name": "web"}, "spec": {"ports": [PORT]}})
    gone = await server.delete(f"{SERVICES}/web")
    assert (gone.code, gone.body["kind"]) == (200, "Service")
    assert gone.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert (await server.get(f"{SERVICES}/web")).code == 404


async def test_delete_again_of_what_waits_returns_it(server: Server) -> None:
    held = configmap()
    held["metadata"]["finalizers"] = ["x.y/z"]
    await server.made(CONFIGMAPS, held)
    for _ in range(2):
        answer = await server.delete(f"{CONFIGMAPS}/settings")
        assert (answer.code, answer.body["kind"]) == (200, "ConfigMap")
        assert answer.body["metadata"]["deletionTimestamp"]


async def test_removed_object_is_answered_with_a_status_that_names_it(server: Server) -> None:
    made = await server.made(CONFIGMAPS, configmap())
    answer = await server.delete(f"{CONFIGMAPS}/settings")
    assert answer.body["status"] == "Success"
    uid = made["metadata"]["uid"]
    assert answer.body["details"] == {"name": "settings", "kind": "configmaps", "uid": uid}


async def test_delete_of_what_is_not_there_is_not_found(server: Server) -> None:
    answer = await server.delete(f"{CONFIGMAPS}/settings")
    assert (answer.code, answer.message) == (404, 'configmaps "settings" not found')


@pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resourceVersion": "1"}])
async def test_delete_with_a_precondition_that_does_not_hold_conflicts(
    server: Server, precondition: dict[str, str]
) -> None:
    await server.made(CONFIGMAPS, configmap())
    answer = await server.delete(f"{CONFIGMAPS}/settings", {"preconditions": precondition})
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert (await server.get(f"{CONFIGMAPS}/settings")).code == 200


@pytest.mark.parametrize(
    ("body", "query", "code"),
    [
        ({"gracePeriodSeconds": -1}, {}, 422),
        ({"gracePeriodSeconds": 2**31}, {}, 422),
        (None, {"gracePeriodSeconds": "9" * 30}, 422),
        ({"gracePeriodSeconds": "1"}, {}, 400),
        ({"gracePeriodSeconds": True}, {}, 400),
        ({"propagationPolicy": "Sideways"}, {}, 422),
        ({"preconditions": 5}, {}, 400),
        ({"dryRun": "All"}, {}, 400),
        ({"kind": "Pod"}, {}, 400),
        (b"{", {}, 400),
        (None, {"gracePeriodSeconds": "soon"}, 400),
        (None, {"dryRun": "Some"}, 400),
    ],
)
async def test_delete_options_that_make_no_sense_are_refused(
    server: Server, body: object, query: dict[str, str], code: int
) -> None:
    await server.made(CONFIGMAPS, configmap())
    answer = await server.delete(f"{CONFIGMAPS}/settings", body, **query)
    assert answer.code == code
    assert (await server.get(f"{CONFIGMAPS}/settings")).code == 200


@pytest.mark.parametrize(("body", "query"), [({"dryRun": ["All"]}, {}), (None, {"dryRun": "All"})])
async def test_delete_in_dry_run_deletes_nothing(
    server: Server, body: object, query: dict[str, str]
) -> None:
    await server.made(CONFIGMAPS, configmap())
    assert (await server.delete(f"{CONFIGMAPS}/settings", body, **query)).code == 200
    assert (await server.get(f"{CONFIGMAPS}/settings")).code == 200


async def test_collection_is_deleted_by_its_selector(server: Server) -> None:
    for name, tier in (("a", "x"), ("b", "y"), ("c", "x")):
        asked = configmap(name)
        asked["metadata"]["labels"] = {"tier": tier}
        await server.made(CONFIGMAPS, asked)
    answer = await server.delete(CONFIGMAPS, labelSelector="tier=x")
    assert (answer.body["kind"], answer.names) == ("ConfigMapList", ["a", "c"])
    assert (await server.get(CONFIGMAPS)).names == ["b"]


class SlowStore(MemoryStore):
    """Takes its time to delete, as a disk does."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    async def delete(self, key: str, **given: Any) -> Entry:
        await self.clock.sleep(0.02)
        return await super().delete(key, **given)


async def test_collection_is_not_deleted_one_by_one(clock: Clock, rng: Stream, log: Logger) -> None:
    server = Server(clock=clock, rng=rng, log=log, store=SlowStore(clock))
    await server.application.bootstrap()
    for number in range(100):
        await server.made(CONFIGMAPS, configmap(f"c{number:02}"))
    began = clock.monotonic()
    answer = await server.delete(CONFIGMAPS)
    assert answer.names == [f"c{number:02}" for number in range(100)]
    assert clock.monotonic() - began < 0.2


async def test_collection_is_left_at_the_first_refusal(server: Server) -> None:
    for name in ("a", "b"):
        await server.made(CONFIGMAPS, configmap(name))
    refused = {"preconditions": {"uid": "another"}}
    assert (await server.delete(CONFIGMAPS, refused)).code == 409
    assert (await server.get(CONFIGMAPS)).names == ["a", "b"]


async def test_collection_of_all_namespaces_is_not_deleted_in_one_go(server: Server) -> None:
    assert (await server.delete("/api/v1/configmaps")).code == 400


async def test_deleted_event_carries_the_revision_of_the_deletion(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap())
    watcher = await server.watch(CONFIGMAPS, resourceVersion=str(server.store.revision))
    await server.delete(f"{CONFIGMAPS}/settings")
    event = await watcher.next()
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["resourceVersion"] == str(server.store.revision)
    await watcher.close()


async def test_namespace_terminates_until_finalized(server: Server) -> None:
    await server.made(NAMESPACES, {"metadata": {"name": "team"}})
    path = f"{NAMESPACES}/team"
    marked = await server.delete(path)
    assert marked.body["status"]["phase"] == "Terminating"
    assert marked.body["spec"]["finalizers"] == ["kubernetes"]
    inside = await server.create("/api/v1/namespaces/team/pods", pod())
    assert inside.code == 403
    space = (await server.get(path)).body
    space["spec"]["finalizers"] = []
    done = await server.update(f"{path}/finalize", space)
    assert done.code == 200
    assert (await server.get(path)).code == 404


async def test_finalize_with_a_stale_version_conflicts(server: Server) -> None:
    made = await server.made(NAMESPACES, {"metadata": {"name": "team"}})
    await server.delete(f"{NAMESPACES}/team")
    made["spec"] = {}
    assert (await server.update(f"{NAMESPACES}/team/finalize", made)).reason == "Conflict"


async def test_finalizing_a_living_namespace_does_not_remove_it(server: Server) -> None:
    made = await server.made(NAMESPACES, {"metadata": {"name": "team"}})
    made["spec"] = {}
    assert (await server.update(f"{NAMESPACES}/team/finalize", made)).code == 200
    assert (await server.get(f"{NAMESPACES}/team")).body["spec"]["finalizers"] == ["kubernetes"]


async def test_eviction_is_a_graceful_delete(server: Server) -> None:
    await server.made(PODS, pod())
    await server.bind("web")
    body = {"kind": "Eviction", "deleteOptions": {"gracePeriodSeconds": 7}}
    answer = await server.create(f"{PODS}/web/eviction", body)
    assert (answer.code, answer.body["status"]) == (201, "Success")
    meta = (await server.get(f"{PODS}/web")).body["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 7


async def test_delete_and_its_finalizer_are_one_write(server: Server) -> None:
    document = configmap()
    document["metadata"]["finalizers"] = ["x.y/z"]
    made = await server.made(CONFIGMAPS, document)
    watcher = await server.watch(CONFIGMAPS, resourceVersion=made["metadata"]["resourceVersion"])
    before = server.store.revision
    gone = await server.delete(f"{CONFIGMAPS}/settings", removeFinalizer="x.y/z")
    assert (gone.code, server.store.revision) == (200, before + 1)
    event = await watcher.next()
    assert (event["type"], "finalizers" in event["object"]["metadata"]) == ("DELETED", False)
    await watcher.close()
