"""Objects for tests, by their interesting parts."""

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document, OwnerReference
from grange.client.client import Client


def pod(name: str, **labels: str) -> Document:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels or {"app": "web"}},
        "spec": {"containers": [{"name": "main", "command": ["true"]}]},
    }


async def create_pod(client: Client, name: str, **labels: str) -> Pod:
    return await client.create(POD, pod(name, **labels))


async def create_owner(
    client: Client, name: str = "web", finalizers: tuple[str, ...] = ()
) -> ReplicationController:
    document = {
        "metadata": {"name": name, "namespace": "default", "finalizers": list(finalizers)},
        "spec": {"replicas": 1, "template": {"spec": pod("x")["spec"]}},
    }
    return await client.create(REPLICATIONCONTROLLER, document)


def reference(**changes: object) -> OwnerReference:
    values: dict[str, object] = {
        "api_version": "v1",
        "kind": "Thing",
        "name": "t",
        "uid": "u",
        "controller": True,
        "block_owner_deletion": True,
    }
    values.update(changes)
    return OwnerReference(**values)  # type: ignore[arg-type]  # fields of several types
