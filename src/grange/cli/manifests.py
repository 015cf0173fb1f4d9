"""Manifests from files, directories, and standard input."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from grange.api import alternatives, codec, unsupported
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.base.errors import GrangeError

_MARK = "GRANGE-COMMAND"
_COMMAND_COMMENT = "# command: [PROGRAM, ARGUMENT]  # to add: nodes run programs, not images"
_SUFFIXES = {".yaml", ".yml", ".json"}


class ManifestError(GrangeError):
    """A manifest cannot be read; the message names the file and the place in it."""


def read(paths: Sequence[str]) -> list[Document]:
    """All documents of the files, in order; lists are flattened, empty documents skipped.

    Args:
        paths: files, directories (their .yaml, .yml and .json files, by name), or ``-``.

    Raises:
        ManifestError: nothing there, not readable, malformed, or without apiVersion and kind.
    """
    if not paths:
        raise click.UsageError(
            "no manifest; write -f FILE, -f DIRECTORY or -f - for standard input"
        )
    documents: list[Document] = []
    for source in paths:
        for name, text in _texts(source):
            documents += _documents(name, text)
    if not documents:
        sources = ("standard input" if path == "-" else path for path in paths)
        raise ManifestError(f"no objects in {', '.join(sources)}")
    return documents


def alternative_yaml(manifest: Document) -> str:
    """The manifest of ``alternatives`` as YAML; comments show where a container needs a command."""
    import yaml  # failures only

    marked = codec.clone(manifest)
    for _, container in unsupported.image_only(alternatives.pod_spec(marked)):
        container[_MARK] = None
    text = yaml.dump(marked, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    return str(text).rstrip().replace(f"{_MARK}: null", _COMMAND_COMMENT)


def read_one(path: str) -> Document:
    """The one document of a file or of standard input (``-``), of whatever form.

    Raises:
        ManifestError: nothing there, not readable, malformed, or several documents.
    """
    texts = _texts(path)
    if len(texts) != 1:
        raise ManifestError(f"{path}: a directory; give one file")
    try:
        loaded = codec.load_yaml_documents(texts[0][1])
    except ApiError as error:
        raise ManifestError(f"{texts[0][0]}: {error.message}") from error
    if len(loaded) != 1:
        kinds = ", ".join(str(item.get("kind") or "no kind") for item in loaded)
        there = f"{len(loaded)} documents where one is meant" + (f" ({kinds})" if kinds else "")
        raise ManifestError(f"{texts[0][0]}: {there}; put it into a separate file")
    return loaded[0]


def _texts(source: str) -> list[tuple[str, str]]:
    if source == "-":
        return [("standard input", sys.stdin.read())]
    path = Path(source)
    try:
        if path.is_dir():
            files = sorted(item for item in path.iterdir() if item.suffix in _SUFFIXES)
            return [(str(item), _text(item)) for item in files]
    except OSError as error:
        raise ManifestError(f"{source}: cannot be read: {error.strerror}") from error
    return [(source, _text(path))]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ManifestError(f"{path}: no such file or directory") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from error


def _documents(name: str, text: str) -> list[Document]:
    try:
        loaded = codec.load_yaml_documents(text)
    except ApiError as error:
        raise ManifestError(f"{name}: {error.message}") from error
    result: list[Document] = []
    for document in loaded:
        items = document.get("items")
        if isinstance(items, list) and str(document.get("kind", "")).endswith("List"):
            result += [item if isinstance(item, dict) else {} for item in items]
        else:
            result.append(document)
    for document in result:
        for field in ("apiVersion", "kind"):
            if not document.get(field):
                raise ManifestError(f"{name}: an object without {field}")
    return result
