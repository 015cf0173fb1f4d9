"""``grange test convert``: LoadTests of gRPC's test infrastructure as TestSessions."""

import click

from grange.api import codec
from grange.api.meta import Document
from grange.cli import manifests, options, terminal
from grange.cli.command import Command
from grange.cli.loadtests import conversion
from grange.cli.loadtests.loadtest_defaults import LoadTestDefaults, read_defaults
from grange.cli.loadtests.loadtest_fields import InvalidLoadTest


@click.command(
    cls=Command,
    examples=(
        "grange test convert loadtest.yaml >session.yaml",
        "grange test convert loadtest.yaml --defaults defaults.yaml | grange test run -",
    ),
)
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="FILE…")
@click.option(
    "--defaults",
    type=click.Path(),
    default="",
    metavar="FILE",
    help="The operator's defaults: images, pools.",
)
@options.output(("yaml", "json"), default="yaml")
def command(files: tuple[str, ...], defaults: str, output: str) -> None:
    """Print the LoadTests (e2etest.grpc.io/v1) of FILE… as TestSessions; - is standard input.

    What has no equal or is changed is a comment of the session and a warning. Other objects of the
    files are printed as they are.
    """
    used = read_defaults(manifests.read_one(defaults)) if defaults else LoadTestDefaults()
    made = []
    for document in manifests.read(files):
        converted = converted_one(document, used)
        for note in converted.notes:
            terminal.echo(f"Warning: {_label(document)}: {note}", err=True)
        made.append(converted)
    if output == "json":
        shown = [item.document for item in made]
        listed = {"apiVersion": "v1", "kind": "List", "items": shown}
        terminal.write(terminal.json_text(shown[0] if len(shown) == 1 else listed) + "\n")
    else:
        terminal.write("---\n".join(map(yaml_text, made)))


def converted_one(document: Document, defaults: LoadTestDefaults) -> conversion.ConvertedLoadTest:
    """The session of a LoadTest; another object as it is.

    Raises:
        InvalidLoadTest: the LoadTest cannot be converted; the message names it.
    """
    if not conversion.is_loadtest(document):
        return conversion.ConvertedLoadTest(document)
    try:
        return conversion.convert(document, defaults)
    except InvalidLoadTest as error:
        raise InvalidLoadTest(f"{_label(document)}: {error}") from error


def yaml_text(converted: conversion.ConvertedLoadTest) -> str:
    """A session as YAML, its notes as comments before it."""
    import yaml

    notes = [f"# {terminal.cell(note)}\n" for note in converted.notes]
    # A clone shares nothing, so that the text has no anchors.
    document = codec.clone(converted.document)
    text = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    return "".join([*notes, str(text)])


def _label(document: Document) -> str:
    metadata = document.get("metadata")
    meta = metadata if isinstance(metadata, dict) else {}
    return f"{document.get('kind')}/{meta.get('name') or meta.get('generateName') or ''}"
