"""Shared by the verbs of rc: operations of a session, pod templates from files, and printing."""

from collections.abc import Awaitable, Callable, Sequence

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document
from grange.api.status import Conflict, Invalid
from grange.cli import manifests, options, session
from grange.cli.confirm import confirm
from grange.cli.name_args import ObjectName
from grange.cli.printers import documents
from grange.cli.results import Results
from grange.client.replica_operations import ReplicationControllers

CONTROLLER = ObjectName(REPLICATIONCONTROLLER)
_ATTEMPTS = 5
OUTPUT = options.output(documents.OBJECT)


def operations(opened: session.ApiSession) -> ReplicationControllers:
    """The operations in the session's namespace."""
    return ReplicationControllers(opened.client, opened.namespace or "default")


def confirm_replacing(seen: ReplicationController, *, yes: bool) -> None:
    """Ask before every pod of a controller is replaced; not where it has no replicas.

    Raises:
        NotConfirmed: the answer was not yes, or there is no terminal to ask at.
    """
    count = seen.spec.replicas
    if count:
        pods = "the pod" if count == 1 else f"the {count} pods"
        confirm(f"Replace {pods} of {seen.metadata.name}?", yes=yes)


async def as_seen(
    opened: session.ApiSession,
    seen: ReplicationController,
    write: Callable[[ReplicationController], Awaitable[object]],
) -> None:
    """Write to a controller if its spec is unchanged since the user was asked.

    Its status and annotations may have changed: they do all the time while a prompt waits.

    Args:
        opened: the session.
        seen: the controller as it was then.
        write: writes, fenced by the version of the controller that it is given.

    Raises:
        Conflict: the spec has changed; nothing was written.
        Invalid: the server refuses what is written.
    """
    name = seen.metadata.name
    for attempt in range(1, _ATTEMPTS + 1):
        now = await operations(opened).get(name)
        before = (seen.metadata.uid, seen.metadata.generation)
        if (now.metadata.uid, now.metadata.generation) != before:
            raise Conflict(f"{name} has changed since the question; nothing was written: try again")
        try:
            await write(now)
        except (Conflict, Invalid):  # a test of a JSON patch that fails is Invalid
            held = (await operations(opened).get(name)).metadata.resource_version
            if attempt == _ATTEMPTS or held == now.metadata.resource_version:
                raise
        else:
            return


async def set_template(
    opened: session.ApiSession, seen: ReplicationController, template: Document
) -> None:
    """Give a controller another template, if its spec is as it was seen.

    Raises:
        Conflict: it is not.
        Invalid: the template breaks a rule.
    """
    ops, name = operations(opened), seen.metadata.name
    await as_seen(
        opened, seen, lambda now: ops.update_template(name, template, unchanged_since=now)
    )


async def document(opened: session.ApiSession, name: str) -> Document:
    """A controller in full."""
    return await opened.document(REPLICATIONCONTROLLER, name)


async def report(opened: session.ApiSession, names: Sequence[str], output: str, done: str) -> None:
    """Print what was done to controllers, or with a format the controllers."""
    results = Results(output)
    for name in names:
        found = await document(opened, name) if results.wants_objects else {}
        line = f"{documents.resource(REPLICATIONCONTROLLER)}/{name} {done}"
        results.add(REPLICATIONCONTROLLER, found, line)
    results.end()


def template_of(path: str, found: Document) -> Document:
    """The pod template that a file holds: bare, of a Pod, or of a ReplicationController.

    Args:
        path: of the file, for messages.
        found: what is in it.

    Raises:
        ManifestError: it is none of these.
    """
    kind = found.get("kind", "")
    if kind == REPLICATIONCONTROLLER.kind:
        template = (found.get("spec") or {}).get("template")
        if isinstance(template, dict):
            return template
        raise manifests.ManifestError(f"{path}: spec.template is missing")
    if kind not in {"", "Pod", "PodTemplate"}:
        raise manifests.ManifestError(
            f"{path}: a {kind} is no pod template; give a Pod, a ReplicationController, "
            "or metadata and spec alone"
        )
    if kind == "PodTemplate":
        found = found.get("template") or {}
    if not isinstance(found.get("spec"), dict):
        raise manifests.ManifestError(f"{path}: spec is missing; add the pod's containers")
    meta = found.get("metadata") or {}
    kept = {key: meta[key] for key in ("labels", "annotations") if meta.get(key)}
    return {**({"metadata": kept} if kept else {}), "spec": found["spec"]}
