"""Each invariant notices what it is there for, and nothing else."""

import msgspec
import pytest

from grange.api.meta import Document
from grange.base.errors import InvariantError
from grange.sim import builders
from grange.sim.invariants import (
    BoundOnce,
    IdentityIsUnique,
    Invariant,
    NoOvercommit,
    ObservedWrite,
    OnePodPerNode,
    RevisionsRise,
    WriteHistory,
)
from grange.store.interface import StoreEvent
from grange.store.memory import MemoryStore


class Tape:
    """Writes one object after another, each at the next revision."""

    def __init__(self, *invariants: Invariant) -> None:
        self.history = WriteHistory(MemoryStore(), invariants)
        self.revision = 0

    def write(
        self, plural: str, document: Document, *, group: str = "core", deleted: bool = False
    ) -> None:
        self.revision += 1
        meta = dict(document["metadata"], resourceVersion=str(self.revision))
        meta.setdefault("uid", f"uid-{meta['name']}")
        body = msgspec.json.encode({**document, "metadata": meta})
        key = f"/{group}/{plural}/{meta['name']}"
        self.history.see(StoreEvent(key, self.revision, body, None, deleted))


def pod(name: str, node: str = "", *, owner: str = "", phase: str = "", **more: str) -> Document:
    document = builders.pod_document(name, requests={"cpu": "1", "memory": "1Gi"})
    if node:
        document["spec"]["nodeName"] = node
    if phase:
        document["status"] = {"phase": phase}
    if owner:
        reference = {"apiVersion": "v1", "kind": "X", "name": owner, "uid": f"uid-{owner}"}
        document["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    document["metadata"].update(more)
    return document


def controller(name: str, placement: str) -> Document:
    spec = {"replicas": 3, "placement": placement}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def test_revisions_must_rise() -> None:
    tape = Tape(RevisionsRise())
    tape.write("pods", pod("a"))
    tape.revision = 0
    with pytest.raises(InvariantError, match="revisions rise"):
        tape.write("pods", pod("a"))


def test_objects_must_carry_their_revision() -> None:
    change = ObservedWrite("/core/pods/a", 7, {"metadata": {"resourceVersion": "6"}}, deleted=False)
    with pytest.raises(InvariantError, match="carries the revision"):
        RevisionsRise().see(change)


def test_uid_must_not_be_shared_or_come_back() -> None:
    tape = Tape(IdentityIsUnique())
    tape.write("pods", pod("a", uid="u"))
    with pytest.raises(InvariantError, match="a UID is of one object"):
        tape.write("pods", pod("b", uid="u"))
    tape.write("pods", pod("a", uid="u"), deleted=True)
    with pytest.raises(InvariantError, match="stays deleted"):
        tape.write("pods", pod("a", uid="u"))


def test_binding_must_not_change() -> None:
    tape = Tape(BoundOnce())
    tape.write("pods", pod("a"))
    tape.write("pods", pod("a", "n1"))
    tape.write("pods", pod("a", "n1"), deleted=True)
    tape.write("pods", pod("a", "n2", uid="another"))  # a new pod of the old name
    with pytest.raises(InvariantError, match="bound once"):
        tape.write("pods", pod("a", "n3", uid="another"))


def test_nodes_must_not_be_overcommitted() -> None:
    tape = Tape(NoOvercommit())
    capacity = {"cpu": "2", "memory": "8Gi", "pods": "110"}
    tape.write("nodes", builders.node_document("n1", capacity=capacity))
    tape.write("pods", pod("a", "n1"))
    tape.write("pods", pod("b", "n1"))
    tape.write("pods", pod("b", "n1", phase="Succeeded"))
    tape.write("pods", pod("c", "n1"))
    tape.write("pods", pod("c", "n1"), deleted=True)
    tape.write("pods", pod("d", "n1"))
    tape.write("pods", pod("x", "a node that is gone"))
    with pytest.raises(InvariantError, match=r"overcommitted.*cpu_milli"):
        tape.write("pods", pod("e", "n1"))


def test_node_under_anothers_name_has_no_limit_until_it_reports() -> None:
    """A binding to the one before it may still be on its way; to the first of a name there is none."""
    tape = Tape(NoOvercommit())
    node = builders.node_document("n1", capacity={"cpu": "2", "memory": "8Gi", "pods": "110"})
    silent: Document = {"metadata": {"name": "n1", "uid": "second"}}
    tape.write("nodes", node)
    tape.write("nodes", silent)
    tape.write("pods", pod("a", "n1"))
    node["metadata"]["uid"] = "second"
    tape.write("nodes", node)
    tape.write("pods", pod("b", "n1"))
    with pytest.raises(InvariantError, match=r"overcommitted.*cpu_milli"):
        tape.write("pods", pod("c", "n1"))
    tape.write("nodes", {"metadata": {"name": "n2", "uid": "new"}})
    with pytest.raises(InvariantError, match=r"overcommitted.*cpu_milli"):
        tape.write("pods", pod("d", "n2"))


def test_pods_of_one_controller_must_not_share_a_node() -> None:
    tape = Tape(OnePodPerNode())
    tape.write("replicationcontrollers", controller("web", "OnePerNode"), group="grange.dev")
    tape.write("replicationcontrollers", controller("heap", "Packed"), group="grange.dev")
    tape.write("pods", pod("a", "n1", owner="web"))
    tape.write("pods", pod("b", "n2", owner="web"))
    tape.write("pods", pod("c", "n1", owner="heap"))
    tape.write("pods", pod("d", "n1", owner="heap"))
    tape.write("pods", pod("e", "n1"))
    tape.write("pods", pod("a", "n1", owner="web", phase="Failed"))
    tape.write("pods", pod("f", "n1", owner="web"))
    with pytest.raises(InvariantError, match="one pod of a controller on a node"):
        tape.write("pods", pod("g", "n1", owner="web"))


def test_history_knows_what_was_written_since() -> None:
    tape = Tape()
    tape.write("pods", pod("a"))
    tape.write("leases", pod("b"))
    tape.write("pods", pod("a"), deleted=True)
    assert tape.history.since(1, without=["/core/leases/"]) == [(3, "/core/pods/a", True)]
