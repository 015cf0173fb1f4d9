"""The collections that a scheduler follows, and what it waits for before its first decision.

An informer may lag, for instance after a network failure. A scheduler that takes over from another one and
decides on such a view assigns the same resources twice. Only bindings matter: everything else that is
late is merely late.
"""

from grange.api.kinds import (
    NAMESPACE,
    NODE,
    POD,
    PODDISRUPTIONBUDGET,
    PODGROUP,
    PRIORITYCLASS,
    QUEUE,
    SERVICE,
)
from grange.api.kinds.pod import Pod
from grange.api.kinds.workloads import CORE_REPLICATIONCONTROLLER, REPLICASET, STATEFULSET
from grange.api.status import ApiError
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client.client import Client
from grange.reconcile.informer import Informer, InformerFactory

_PAGE = 1000
_POLL_S = 0.05
_PATIENCE_S = 5.0  # after so long the cluster is asked again: what is missing may have been deleted
_BACKOFF = Exponential(initial_s=0.2, cap_s=5.0)


class Informers:
    """The collections that a scheduler follows: the shared informers of a process."""

    def __init__(self, factory: InformerFactory) -> None:
        self.namespaces = factory.informer(NAMESPACE)
        self.nodes = factory.informer(NODE)
        self.pods = factory.informer(POD)
        self.services = factory.informer(SERVICE)
        self.workloads = (
            factory.informer(REPLICASET),
            factory.informer(STATEFULSET),
            factory.informer(CORE_REPLICATIONCONTROLLER),
        )
        self.groups = factory.informer(PODGROUP)
        self.quotas = factory.informer(QUEUE)
        self.budgets = factory.informer(PODDISRUPTIONBUDGET)
        self.classes = factory.informer(PRIORITYCLASS)

    async def wait_synced(self) -> None:
        """Wait until every collection was listed."""
        for informer in (
            *(self.namespaces, self.services, *self.workloads, self.nodes, self.pods),
            *(self.groups, self.quotas, self.budgets, self.classes),
        ):
            await informer.synced.wait()


async def wait_for_bindings(
    client: Client, pods: Informer[Pod], *, clock: Clock, log: Logger
) -> None:
    """Return when the informer shows every pod bound that is bound by now."""
    tries = 0
    while True:
        try:
            wanted = await _bound(client)
        except ApiError as error:
            tries += 1
            log.warning("cannot ask which pods are bound", error=error)
            await clock.sleep(_BACKOFF.delay(tries))
            continue
        until = clock.monotonic() + _PATIENCE_S
        while wanted:
            wanted = [pod for pod in wanted if not _shows(pods, pod)]
            if wanted and clock.monotonic() >= until:
                break
            if wanted:
                await clock.sleep(_POLL_S)
        if not wanted:
            return
        log.info("waiting for bindings to show", pods=len(wanted))


async def _bound(client: Client) -> list[Pod]:
    """All pods that have a node, without what is not looked at."""
    found: list[Pod] = []
    cont = ""
    while True:
        page = await client.list(POD, limit=_PAGE, cont=cont)
        found += [pod for pod in page.items if pod.spec.node_name]
        cont = page.next
        if not cont:
            return found


def _shows(pods: Informer[Pod], pod: Pod) -> bool:
    """Whether the informer shows the binding, or another pod of that name."""
    seen = pods.store.get(pod.key)
    if seen is None:
        return False
    return bool(seen.spec.node_name) or seen.metadata.uid != pod.metadata.uid
