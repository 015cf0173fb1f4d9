"""Listers of the objects that the replication controller reads, with its indexes."""

from collections.abc import Container, Sequence

from grange.api.kinds import NODE, POD, PODDISRUPTIONBUDGET, REPLICATIONCONTROLLER
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectKey, controller_of
from grange.controllers.replication.podtemplate import ZONE
from grange.controllers.shared import pod_identity
from grange.reconcile import owners
from grange.reconcile.indexer import Indexer
from grange.reconcile.informer import InformerFactory

_BY_MARK = "replication/orphan-of"  # orphans by namespace and name label
_BY_NAME = "replication/name"  # pods by namespace and name label
_BY_NODE = "replication/node"  # pods by the node they are bound to
_WITHOUT_ZONE, _YES = "replication/without-zone", "yes"
_BY_LABEL = "replication/label"  # controllers by namespace and the label value of their name


class Listers:
    """Controllers, pods and nodes as the informers have them."""

    def __init__(self, informers: InformerFactory) -> None:
        self.controllers = informers.informer(REPLICATIONCONTROLLER)
        self.pods = informers.informer(POD)
        self.nodes = informers.informer(NODE)
        self.disruption_budgets = informers.informer(PODDISRUPTIONBUDGET)
        self.pods.store.add_index(owners.CONTROLLER_UID, owners.controller_uid)
        self.pods.store.add_index(_BY_MARK, _mark)
        self.pods.store.add_index(_BY_NAME, _named)
        self.nodes.store.add_index(
            _WITHOUT_ZONE, lambda node: () if ZONE in node.metadata.labels else (_YES,)
        )
        self.pods.store.add_index(_BY_NODE, lambda pod: (pod.spec.node_name,))
        self.controllers.store.add_index(_BY_LABEL, lambda owner: (_name_mark(owner),))

    async def wait_synced(self) -> None:
        """Wait until each has shown a complete state."""
        for informer in (self.controllers, self.pods, self.nodes, self.disruption_budgets):
            await informer.synced.wait()

    def candidates(self, controller: ReplicationController) -> list[Pod]:
        """The pods of a controller, and the orphans that it might adopt."""
        meta = controller.metadata
        return [
            *self.pods.store.by_index(owners.CONTROLLER_UID, meta.uid),
            *self.pods.store.by_index(_BY_MARK, _name_mark(controller)),
        ]

    def has_pods_of_name(
        self, controller: ReplicationController, *, besides: Sequence[Pod]
    ) -> bool:
        """Whether other pods have the controller's name label."""
        known = {pod.metadata.uid for pod in besides}
        named = self.pods.store.by_index(_BY_NAME, _name_mark(controller))
        return any(pod.metadata.uid not in known for pod in named)

    def adopters(self, orphan: Pod) -> Sequence[ReplicationController]:
        """The controllers that might adopt a pod."""
        label = orphan.metadata.labels.get(pod_identity.RC_NAME_LABEL)
        if label is None:
            return ()
        return self.controllers.store.by_index(_BY_LABEL, f"{orphan.metadata.namespace}/{label}")

    def on_node(self, name: str) -> Sequence[Pod]:
        """The pods that are bound to a node."""
        return self.pods.store.by_index(_BY_NODE, name)

    def budgets(self, namespace: str) -> Sequence[PodDisruptionBudget]:
        """The PodDisruptionBudgets of a namespace."""
        return self.disruption_budgets.store.list(namespace)

    def every_node_has_zone(self) -> bool:
        """Whether there are nodes, and each has the label of its zone."""
        nodes_ = self.nodes.store
        return len(nodes_) > 0 and not nodes_.by_index(_WITHOUT_ZONE, _YES)

    def taken(self, namespace: str, *, besides: Sequence[Pod]) -> Container[str]:
        """The names of a namespace's pods except some, without listing them."""
        return _Taken(self.pods.store, namespace, besides)


def _mark(pod: Pod) -> Sequence[str]:
    return _named(pod) if controller_of(pod.metadata) is None else ()


def _named(pod: Pod) -> Sequence[str]:
    label = pod.metadata.labels.get(pod_identity.RC_NAME_LABEL)
    return () if label is None else (f"{pod.metadata.namespace}/{label}",)


def _name_mark(controller: ReplicationController) -> str:
    meta = controller.metadata
    return f"{meta.namespace}/{pod_identity.label_value(meta.name)}"


class _Taken:
    def __init__(self, store: Indexer[Pod], namespace: str, besides: Sequence[Pod]) -> None:
        self._store = store
        self._namespace = namespace
        self._besides = {pod.metadata.name for pod in besides}

    def __contains__(self, name: object) -> bool:
        return name not in self._besides and ObjectKey(self._namespace, str(name)) in self._store
