"""The pod and the container that a verb's words mean."""

from collections.abc import Sequence

import click

from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.cli import terminal
from grange.cli.session import ApiSession

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


async def running_pod(opened: ApiSession, what: str) -> Document:
    """The pod that ``POD`` or ``KIND/NAME`` means: of an owner of pods, a ready one.

    Raises:
        ApiError: there is none.
    """
    word, slash, name = what.partition("/")
    kind = await opened.kind(word) if slash else POD
    if kind is POD:
        return await opened.document(POD, name if slash else word)
    owner = await opened.document(kind, name)
    uid = owner["metadata"]["uid"]
    owned = [
        item
        for item in await opened.listed(POD, opened.within(POD))
        if any(ref["uid"] == uid for ref in item["metadata"].get("ownerReferences") or ())
    ]
    return best_pod(owned, f"{kind.singular} {name} has no pod that runs")


def best_pod(pods: Sequence[Document], otherwise: str) -> Document:
    """The first ready pod, or else the first that runs.

    Raises:
        NotFound: none runs.
    """
    running = [item for item in pods if (item.get("status") or {}).get("phase") == "Running"]
    if not running:
        raise NotFound(f"{otherwise}; see grange get pods")
    return next(filter(_is_ready, running), running[0])


def _is_ready(pod: Document) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any((item["type"], item["status"]) == ("Ready", "True") for item in conditions)


def container_of(pod: Document, wanted: str, *, quiet: bool = False) -> Document:
    """The container that is meant; without a name the annotated or first one.

    Args:
        pod: the pod.
        wanted: the name; empty for none.
        quiet: do not print which one is taken where there are several.

    Raises:
        ClickException: there is none of that name.
    """
    spec, metadata = pod["spec"], pod["metadata"]
    others = (*(spec.get("initContainers") or ()), *(spec.get("ephemeralContainers") or ()))
    items: list[Document] = [*spec["containers"], *others]
    annotated = (metadata.get("annotations") or {}).get(_DEFAULT_CONTAINER)
    names = [item["name"] for item in items]
    name = wanted or (annotated if annotated in names else names[0])
    if name not in names:
        known = ", ".join(names)
        raise click.ClickException(f"pod {metadata['name']}: no container {name}; it has {known}")
    if not (wanted or annotated or quiet) and len(spec["containers"]) > 1:
        text = f"container {name}, the first of {', '.join(names)}; choose another one with -c"
        terminal.echo(text, err=True)
    return items[names.index(name)]
