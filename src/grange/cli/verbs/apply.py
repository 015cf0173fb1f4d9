"""``grange apply``: create objects from manifests, or change them to match."""

import click
import msgspec

from grange.api import http
from grange.api.codec import decode_document, encode
from grange.api.http import Request
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import NotFound
from grange.cli import manifests, options, session, terminal, waiting
from grange.cli.command import Command
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.results import Results

_SUFFIXES = {"none": "", "client": " (dry run)", "server": " (server dry run)"}  # kubectl's words
_BOOKKEEPING = frozenset({"resourceVersion", "generation", "managedFields"})
_GO_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # so that kubectl can take over


@click.command(
    cls=Command,
    examples=(
        "grange apply -f web.yaml --wait",
        "grange apply -f manifests/ --dry-run",
    ),
)
@options.FILES
@click.option("--wait", is_flag=True, help="Wait until everything is ready.")
@options.timeout("60s")
@click.option(
    "--dry-run",
    "dry_run",
    type=click.Choice(["none", "client", "server"]),
    is_flag=False,
    flag_value="server",
    default="none",
    help="Change nothing: server (the default) lets the server check, client only compares.",
)
@options.output(documents.OBJECT)
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    files: tuple[str, ...],
    wait: bool,  # noqa: FBT001  click passes flags by name
    timeout: str,
    dry_run: str,
    output: str,
) -> None:
    """Create or change the objects of the manifests.

    What the server refuses does not keep the other objects from being applied; the exit code is 1 then.
    """
    timeout_s = parse_duration(timeout)
    wanted = manifests.read(files)

    async def verb(opened: session.ApiSession) -> int:
        applied = []
        results = Results(output)
        for document in wanted:
            with results.refusals.of_one():
                kind = await opened.kind_of(document)
                outcome, result = await apply_one(opened, kind, document, dry_run=dry_run)
                name = result["metadata"].get("name") or f"{result['metadata']['generateName']}…"
                done = f"{documents.resource(kind)}/{name} {outcome}{_SUFFIXES[dry_run]}"
                results.add(kind, result, done)
                applied.append((kind, name, result["metadata"].get("namespace", "")))
        results.end()
        if refused := results.refusals.count:
            if len(wanted) > 1:
                left = "; not waiting for the others" if wait and applied else ""
                terminal.echo(f"{refused} of {len(wanted)} objects refused{left}", err=True)
            return 1
        if wait and dry_run == "none":
            return await waiting.wait_ready(opened, applied, timeout_s=timeout_s)
        return 0

    session.run(env, target, verb)


async def apply_one(
    opened: session.ApiSession, kind: AnyKind, document: Document, *, dry_run: str = "none"
) -> tuple[str, Document]:
    """Apply one manifest: a three-way merge of last applied, wanted and present.

    Args:
        opened: the session.
        kind: of the manifest.
        document: the manifest.
        dry_run: ``server`` has the server do all but keep it, ``client`` sends no write at all.

    Returns:
        "created", "configured" or "unchanged", and the object as the server has it.

    Raises:
        ApiError: the server refused.
    """
    metadata = document.setdefault("metadata", {})
    namespace = opened.within(kind, metadata.get("namespace", ""))
    if namespace:
        metadata["namespace"] = namespace
    name = metadata.get("name", "")
    query = {"dryRun": "All"} if dry_run == "server" else {}
    marked = _marked(document)
    present = await _present(opened, kind, name, namespace)
    if present is None:
        if dry_run == "client":
            return "created", marked
        answer = await opened.fetch(
            Request(
                "POST",
                kind.path(namespace),
                query=query,
                headers={"content-type": http.JSON},
                body=encode(marked),
            )
        )
        return "created", decode_document(answer.body)
    last = present["metadata"].get("annotations", {}).get(LAST_APPLIED, "{}")
    notes = marked["metadata"]["annotations"]
    if decode_document(last.encode()) == decode_document(notes[LAST_APPLIED].encode()):
        notes[LAST_APPLIED] = last  # the same, in the spelling of another program
    from grange.cli.three_way import three_way  # reads the schemas, which takes its time

    patch = three_way(decode_document(last.encode()), marked, present, kind)
    if not patch or (dry_run == "client" and _covers(present, marked)):
        return "unchanged", present
    if dry_run == "client":
        return "configured", present
    answer = await opened.fetch(
        Request(
            "PATCH",
            kind.path(namespace, name),
            query=query,
            headers={"content-type": http.MERGE_PATCH},
            body=encode(patch),
        )
    )
    result = decode_document(answer.body)
    return ("unchanged" if _content(result) == _content(present) else "configured"), result


def _covers(present: object, wanted: object) -> bool:
    """Whether all that is wanted is there; a server adds defaults, also to the items of lists.

    The annotation of the last apply is part of what is wanted, so that it differs where something
    is wanted no more.
    """
    if isinstance(wanted, dict) and isinstance(present, dict):
        return all(key in present and _covers(present[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(present, list):
        return len(wanted) == len(present) and all(map(_covers, present, wanted))
    return wanted == present


def _content(document: Document) -> Document:
    """The object without what a write changes by itself, and a dry run does not."""
    meta = {key: value for key, value in document["metadata"].items() if key not in _BOOKKEEPING}
    return {**document, "metadata": meta}


async def _present(
    opened: session.ApiSession, kind: AnyKind, name: str, namespace: str
) -> Document | None:
    if not name:
        return None  # generateName always creates
    try:
        return await opened.document(kind, name, namespace)
    except NotFound:
        return None


def _marked(document: Document) -> Document:
    """The manifest with itself in the annotation that later applies compare with."""
    annotations = dict(document["metadata"].get("annotations") or {})
    annotations.pop(LAST_APPLIED, None)
    plain = {**document, "metadata": {**document["metadata"], "annotations": annotations}}
    annotations = {**annotations, LAST_APPLIED: _go_json(plain)}
    return {**document, "metadata": {**document["metadata"], "annotations": annotations}}


def _go_json(document: Document) -> str:
    """As kubectl spells it, so that its next apply of the same manifest changes nothing."""
    text = msgspec.json.encode(document, order="sorted").decode()
    return text.translate(_GO_ESCAPES) + "\n"
