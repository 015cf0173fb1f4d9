"""Who has to give back quota that was lent, when its owner wants it.

Owners come before borrowers whatever their priorities: what is lent is lent until then. Of the pods
in queues that borrow, the least important and youngest go first, each with its gang if too few of
that would be left, and only as long as a queue keeps at least its own capacity. Pods that are on
their way out count as gone. If that does not free enough, nobody goes.
"""

from collections.abc import Callable, Sequence

from grange.scheduler.gangs.quotas import Amounts, Quotas, total
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.preemption.victims import importance

GangVictims = Callable[[Sequence[PodInfo], Sequence[PodInfo]], tuple[PodInfo, ...]]
"""Of victims, and those who go already: the victims and who goes with them."""


def borrowers(
    quotas: Quotas,
    info: Callable[[str], PodInfo | None],
    gang_victims: GangVictims,
    queue: str,
    wanted: Amounts,
) -> tuple[PodInfo, ...]:
    """The pods that have to go so that a queue can admit so much of its own capacity.

    Args:
        quotas: the books.
        info: a pod by its UID.
        gang_victims: who goes with whom.
        queue: who wants its share back.
        wanted: how much, in all.

    Returns:
        Nobody where the queue would have to borrow itself, nothing is missing, or not enough can
        be had.
    """
    if not quotas.entitled(queue, wanted):
        return ()
    short, candidates = _candidates(quotas, info, queue, wanted)
    gone: dict[str, PodInfo] = {}
    for pod in sorted(candidates, key=importance, reverse=True):
        if not short:
            break
        if pod.uid in gone or not any(quotas.charge_of(pod.uid)[1].get(name) for name in short):
            continue
        going = gang_victims([pod], [*gone.values()])
        everybody = {**gone, **{item.uid: item for item in going}}
        if _keep_their_own(quotas, everybody):
            for item in going:
                if item.uid not in gone:
                    short = _less(short, quotas.charge_of(item.uid)[1])
            gone = everybody
    return () if short else tuple(gone.values())


def _candidates(
    quotas: Quotas, info: Callable[[str], PodInfo | None], queue: str, wanted: Amounts
) -> tuple[dict[str, int], list[PodInfo]]:
    """What is missing once those on their way out have gone, and the pods of queues that borrow."""
    short = quotas.shortage(queue, wanted)
    found = []
    for peer in quotas.peers(queue):
        if peer == queue or not quotas.borrowed(peer):
            continue
        for uid, held in quotas.charged(peer):
            pod = info(uid)
            if pod is not None and pod.pod.metadata.deletion_timestamp:
                short = _less(short, held)
            elif pod is not None:
                found.append(pod)
    return short, found


def _keep_their_own(quotas: Quotas, gone: dict[str, PodInfo]) -> bool:
    """Whether every queue that loses pods still uses its own capacity of what they used."""
    lost: dict[str, list[Amounts]] = {}
    for uid in gone:
        queue, held = quotas.charge_of(uid)
        lost.setdefault(queue, []).append(held)
    for queue, parts in lost.items():
        borrowed = quotas.borrowed(queue)
        for name, amount in total(parts).items():
            if quotas.limits(queue, name) and amount > borrowed.get(name, 0):
                return False
    return True


def _less(short: dict[str, int], held: Amounts) -> dict[str, int]:
    left = {name: amount - held.get(name, 0) for name, amount in short.items()}
    return {name: amount for name, amount in left.items() if amount > 0}
