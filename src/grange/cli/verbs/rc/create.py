"""``grange rc create``."""

import click

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import PLACEMENTS, STRATEGIES
from grange.api.meta import Document
from grange.api.selectors import IN, Labels, SelectorError
from grange.cli import manifests, options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.verbs.rc import objects


@click.command(
    cls=Command,
    examples=(
        "grange rc create web -f pod.yaml",
        "grange rc create web --pod-label app=web -- python3 -m http.server",
    ),
)
@click.argument("name")
@click.argument("program", nargs=-1)
@click.option(
    "-f",
    "--filename",
    type=click.Path(),
    default="",
    help="File with a pod, a pod template or a controller; - is standard input.",
)
@click.option("--image", default="", help="Image of its only container, instead of a file.")
@click.option(
    "--node-selector",
    default="",
    help="Label selector of nodes, for example 'disk=ssd,zone in (a,b)'.",
)
@click.option(
    "--strategy",
    type=click.Choice(STRATEGIES),
    default=None,
    help="Whether pods may move between nodes.",
)
@click.option(
    "--placement", type=click.Choice(PLACEMENTS), default=None, help="How pods are placed."
)
@click.option("--pod-label", "pod_labels", multiple=True, help="KEY=VALUE for every pod.")
@click.option("-l", "--label", "labels", multiple=True, help="KEY=VALUE for the controller.")
@click.option("--no-protect", is_flag=True, help="Allow its deletion while it has replicas.")
@click.option("--dry-run", is_flag=True, help="Let the server validate it, and keep nothing.")
@objects.OUTPUT
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    program: tuple[str, ...],
    **given: object,
) -> None:
    """Create NAME from a file, from --image, or from a PROGRAM after --; it has no replicas yet."""
    spec = _spec(str(given["filename"]), str(given["image"]), program)
    if selector := str(given["node_selector"]):
        try:
            spec["nodeSelector"] = node_selector(selector)
        except SelectorError as error:
            raise click.UsageError(f"--node-selector: {error}") from error
    for field in ("strategy", "placement"):
        if given[field] is not None:
            spec[field] = given[field]
    if pod_labels := pairs("--pod-label", given["pod_labels"]):
        spec["podLabels"] = {**(spec.get("podLabels") or {}), **pod_labels}
    labels = pairs("--label", given["labels"])
    dry = bool(given["dry_run"])

    async def verb(opened: session.ApiSession) -> int:
        made = await objects.operations(opened).create(
            name, spec, labels=labels, protect=not given["no_protect"], dry_run=dry
        )
        if dry:
            terminal.echo(f"{documents.resource(REPLICATIONCONTROLLER)}/{name} would be created")
            return 0
        await objects.report(opened, [made.metadata.name], str(given["output"]), "created")
        if not given["output"]:
            terminal.echo(
                f"it has no replicas yet; set them with grange rc scale {name} --replicas N",
                err=True,
            )
        return 0

    session.run(env, target, verb)


def _spec(path: str, image: str, program: tuple[str, ...]) -> Document:
    if bool(path) == bool(image or program):
        raise click.UsageError("no pod template; give one of -f FILE, --image IMAGE or -- PROGRAM…")
    if not path:
        container: Document = {"name": "main"}
        container |= {"image": image} if image else {}
        container |= {"command": list(program)} if program else {}
        return {"template": {"spec": {"containers": [container]}}}
    found = manifests.read_one(path)
    if found.get("kind") != REPLICATIONCONTROLLER.kind:
        return {"template": objects.template_of(path, found)}
    spec = found.get("spec")
    if not isinstance(spec, dict) or spec.get("replicas") is None:
        raise manifests.ManifestError(
            f"{path}: spec.replicas is missing; set a number, which may be 0"
        )
    if not isinstance(spec["replicas"], int) or spec["replicas"] < 0:
        raise manifests.ManifestError(f"{path}: spec.replicas: {spec['replicas']} is not 0 or more")
    return dict(spec)


def node_selector(text: str) -> Document:
    """A label selector as text, as the document of a field.

    Raises:
        SelectorError: the text is no label selector.
    """
    equal, expressions = {}, []
    for item in Labels.parse(text).requirements:
        if item.operator == IN and len(item.values) == 1 and item.key not in equal:
            equal[item.key] = item.values[0]
            continue
        values = {"values": list(item.values)} if item.values else {}
        expressions.append({"key": item.key, "operator": item.operator, **values})
    found: Document = {}
    if equal:
        found["matchLabels"] = equal
    if expressions:
        found["matchExpressions"] = expressions
    return found


def pairs(option: str, given: object) -> dict[str, str]:
    """``KEY=VALUE`` words as a mapping.

    Raises:
        click.UsageError: one has no ``=``.
    """
    found = {}
    for word in given if isinstance(given, tuple) else ():
        key, equals, value = str(word).partition("=")
        if not equals or not key:
            raise click.UsageError(f"{option} {word}: write KEY=VALUE")
        found[key] = value
    return found
