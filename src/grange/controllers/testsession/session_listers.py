"""What the session controller knows of the world: sessions, pods, leases, the policy and nodes."""

from collections.abc import Sequence

from grange.api.kinds import LEASEPOLICY, MACHINELEASE, NODE, POD, TESTSESSION
from grange.api.kinds.leasepolicy import POLICY_NAME, LeasePolicy
from grange.api.kinds.machinelease import MachineLease
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import TestSession
from grange.api.meta import ObjectKey
from grange.controllers.testsession.link_mounts import mounts_are_links
from grange.controllers.testsession.queueing import test_name
from grange.reconcile import owners
from grange.reconcile.informer import InformerFactory

_BY_GROUP = "testsession/group"
_BY_TEST = "testsession/test"
_BY_MOUNTS = "testsession/mounts"  # every reconcile asks, and a pool may have hundreds of nodes
_OWN = "own"


class SessionListers:
    """Objects as the informers showed them last.

    Args:
        informers: where they come from.

    Attributes:
        sessions, pods, leases, policies, nodes: the informers.
    """

    def __init__(self, informers: InformerFactory) -> None:
        self.sessions = informers.informer(TESTSESSION)
        self.pods = informers.informer(POD)
        self.leases = informers.informer(MACHINELEASE)
        self.policies = informers.informer(LEASEPOLICY)
        self.nodes = informers.informer(NODE)
        self.pods.store.add_index(owners.CONTROLLER_UID, owners.controller_uid)
        self.leases.store.add_index(owners.CONTROLLER_UID, owners.controller_uid)
        self.sessions.store.add_index(_BY_GROUP, _group)
        self.sessions.store.add_index(_BY_TEST, _test)
        self.nodes.store.add_index(_BY_MOUNTS, _mounts)

    async def wait_synced(self) -> None:
        """Wait until each informer has listed its collection."""
        for informer in (self.sessions, self.pods, self.leases, self.policies, self.nodes):
            await informer.synced.wait()

    def pods_of(self, session: TestSession) -> list[Pod]:
        """The pods that a session controls."""
        return [*self.pods.store.by_index(owners.CONTROLLER_UID, session.metadata.uid)]

    def leases_of(self, session: TestSession) -> list[MachineLease]:
        """The leases that a session controls."""
        return [*self.leases.store.by_index(owners.CONTROLLER_UID, session.metadata.uid)]

    def group_of(self, session: TestSession) -> list[TestSession]:
        """The sessions of the same concurrency group, oneself among them."""
        found: list[TestSession] = []
        for value in _group(session):
            found += self.sessions.store.by_index(_BY_GROUP, value)
        return found

    def runs_of(self, session: TestSession) -> list[TestSession]:
        """The sessions that run the same test, oneself among them."""
        found: list[TestSession] = []
        for value in _test(session):
            found += self.sessions.store.by_index(_BY_TEST, value)
        return found

    def policy(self) -> LeasePolicy:
        """The policy that has an effect, or the default."""
        return self.policies.store.get(ObjectKey("", POLICY_NAME)) or LeasePolicy()

    def mounts_are_links(self) -> bool:
        """Whether pods are processes that share a file system: all nodes give loopback addresses."""
        return bool(len(self.nodes.store)) and not self.nodes.store.by_index(_BY_MOUNTS, _OWN)


def _mounts(node: Node) -> Sequence[str]:
    return () if mounts_are_links((node,)) else (_OWN,)


def _group(session: TestSession) -> Sequence[str]:
    own = session.spec.concurrency
    return () if own is None else (f"{session.metadata.namespace}/{own.group}",)


def _test(session: TestSession) -> Sequence[str]:
    return (f"{session.metadata.namespace}/{test_name(session)}",)
