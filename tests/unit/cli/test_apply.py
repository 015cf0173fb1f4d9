"""What ``grange apply`` says that it did, or would do."""

import copy

import pytest
from tests.unit.cli.sessions import session
from tests.unit.controllers import builders
from tests.unit.controllers.world import World, world

from grange.api.kinds import CONFIGMAP, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.verbs.apply import apply_one

WEB: Document = {
    "apiVersion": "grange.dev/v1alpha1",
    "kind": "ReplicationController",
    "metadata": {"name": "web"},
    "spec": {"replicas": 1, "template": builders.TEMPLATE},
}
SETTINGS: Document = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"a": "1"},
}


async def outcome(there: World, document: Document, dry_run: str = "none") -> str:
    kind = CONFIGMAP if document["kind"] == "ConfigMap" else REPLICATIONCONTROLLER
    said, _ = await apply_one(session(there), kind, copy.deepcopy(document), dry_run=dry_run)
    return said


async def stored(there: World, document: Document) -> Document:
    name = document["metadata"]["name"]
    if document["kind"] == "ConfigMap":
        return await there.client.get_document(CONFIGMAP, name, "default")
    return await there.client.get_document(REPLICATIONCONTROLLER, name, "default")


@pytest.mark.parametrize("dry_run", ["server", "client"])
@pytest.mark.parametrize("document", [WEB, SETTINGS], ids=["controller", "configmap"])
async def test_dry_run_says_what_an_apply_would_do(
    document: Document, dry_run: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        changed = copy.deepcopy(document)
        changed["metadata"]["labels"] = {"team": "a"}
        fewer = copy.deepcopy(document)
        if "data" in fewer:
            fewer["data"] = {}
        else:
            fewer["spec"]["replicas"] = 0
        assert await outcome(there, document, dry_run) == "created"
        assert await outcome(there, document) == "created", "the dry run kept nothing"
        assert await outcome(there, document, dry_run) == "unchanged"
        for other in (changed, fewer):
            before = await stored(there, document)
            assert await outcome(there, other, dry_run) == "configured"
            after = await stored(there, document)
            assert after == before
        assert await outcome(there, document) == "unchanged"
        assert await outcome(there, changed) == "configured"
        assert await outcome(there, changed, dry_run) == "unchanged"
