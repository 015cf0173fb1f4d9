"""Before the first decision of a turn: know all that was decided in the turns of others.

An informer may lag, by a network that was cut, say. Whoever takes over from another scheduler and
decides on such a view gives the same room away twice. Only bindings matter: everything else that
is late is merely late.
"""

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.status import ApiError
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client.client import Client
from grange.reconcile.informer import Informer

_PAGE = 1000
_POLL_S = 0.05
_PATIENCE_S = 5.0  # after so long the cluster is asked again: what is missing may have been deleted
_BACKOFF = Exponential(initial_s=0.2, cap_s=5.0)


async def catch_up(client: Client, pods: Informer[Pod], *, clock: Clock, log: Logger) -> None:
    """Return when the informer shows every pod bound that is bound by now.

    Args:
        client: to ask the cluster itself.
        pods: synced.
        clock: waits.
        log: what keeps it waiting.
    """
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
        log.info("waiting for news of bindings", pods=len(wanted))


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
    """Whether the informer knows of the binding, or of another pod of that name."""
    seen = pods.store.get(pod.key)
    if seen is None:
        return False
    return bool(seen.spec.node_name) or seen.metadata.uid != pod.metadata.uid
