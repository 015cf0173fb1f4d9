"""The pods of a machine, evicted until none that can move is left."""

from collections.abc import Sequence

from grange.api.fields import lookup
from grange.api.kinds import POD
from grange.api.kinds.machine import Machine
from grange.api.kinds.pod import FINISHED
from grange.api.meta import Document
from grange.api.status import Conflict, NotFound, ServiceUnavailable, TooManyRequests
from grange.base.plurals import counted
from grange.cli import progress, readiness, terminal, waiting
from grange.cli.session import ApiSession

_LOOK_S = 1.0
_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_EVERY_NODE = frozenset({"DaemonSet", "Node"})


async def movable_pods(opened: ApiSession, node: str) -> list[Document]:
    """The pods on a node that have not ended, without those of every node."""
    found = await opened.listed(POD, "", fields=f"spec.nodeName={node}")
    return [pod for pod in found if _is_movable(pod)]


def _is_movable(pod: Document) -> bool:
    meta = pod["metadata"]
    return (
        lookup(pod, "status.phase") not in FINISHED
        and _owner(pod) not in _EVERY_NODE
        and _MIRROR_ANNOTATION not in (meta.get("annotations") or {})
    )


def _owner(pod: Document) -> str:
    """The kind of its controller; empty without one."""
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(owner["kind"]) for owner in owners if owner.get("controller")), "")


def question(machine: str, pods: Sequence[Document]) -> str:
    """What to ask before pods leave a machine."""
    alone = sorted(_name(pod) for pod in pods if not _owner(pod))
    aside = f" Nothing replaces {', '.join(alone)}." if alone else ""
    return f"Evict {_counted(len(pods))} from {machine}?{aside}"


async def drained(opened: ApiSession, machine: Machine, timeout_s: float) -> bool:
    """Evict the pods of a machine until they are gone; whether they are in time."""
    clock, row = opened.env.clock, f"machine/{machine.metadata.name}"
    shown = progress.Progress(opened.env)
    shown.add(row)
    try:
        async with clock.timeout(timeout_s), shown.shown():
            while not (state := await _step(opened, machine.node)).done:
                shown.update(row, state)
                await clock.sleep(_LOOK_S)
            shown.update(row, state)
            return True
    except TimeoutError:
        text = shown.rows[row].state.text
        terminal.echo(f"timed out after {timeout_s:g}s: {row}: {text}", err=True)
        return False


async def _step(opened: ApiSession, node: str) -> readiness.WaitState:
    """Ask for each pod's eviction once, and look what is left."""
    try:
        pods = await movable_pods(opened, node)
        refused = [text for pod in pods if (text := await _evicted(opened, pod))]
    except ServiceUnavailable:
        return readiness.WaitState(done=False, text=waiting.SILENT)
    if not pods:
        return readiness.WaitState(done=True, text="no pods to move")
    aside = f": {refused[0]}" if refused else ""
    return readiness.WaitState(done=False, text=f"{_counted(len(pods))} left{aside}")


async def _evicted(opened: ApiSession, pod: Document) -> str:
    """Ask for a pod's eviction; why it is refused, or empty."""
    meta = pod["metadata"]
    if meta.get("deletionTimestamp"):
        return ""
    try:
        await opened.client.evict(meta["name"], meta["namespace"], uid=meta["uid"])
    except TooManyRequests as error:
        return f"pod {_name(pod)}: {error.message}"
    except (NotFound, Conflict):
        pass  # it is gone, or another one has its name: the next look shows it
    return ""


def _name(pod: Document) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _counted(count: int) -> str:
    return f"{counted(count, 'pod')}"
