"""Names and prose: unique public classes, unique modules, and words that do not come back."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.source_tree import ROOT, SRC, listed, nodes, parsed, sources, text

# Names that every reader expects in several packages.
CONVENTIONAL_MODULES = {
    "__init__": "a package",
    "config": "the settings of the package",
    "controller": "the asynchronous part of a controller",
    "errors": "the errors of the package",
    "event_handlers": "what a component does with the events of its informers",
    "logic": "the pure part of a controller",
    "main": "where a command line begins",
    "metrics": "the metrics of the package",
    "service": "the asynchronous part of a component",
    "verb": "a verb of the command line that is a package",
}
# Folders whose modules are named after what they implement; another module may bear that name, too.
NAMED_AFTER_SUBJECT = {
    "api/defaults": "one module for a part of an object",
    "api/kinds": "one module for a kind",
    "api/printing": "one module for a kind",
    "api/validation": "one module for a part of an object",
    "apiserver/admission": "one module for an admission plugin",
    "apiserver/subresources": "one module for a subresource",
    "cli/printers": "one module for a kind",
    "cli/verbs": "one module for a verb",
    "controllers/gangjob/frameworks": "one module for a framework",
    "controllers/gangjob/adapters": "one module for a kind",
    "scheduler/plugins": "one module for a plugin",
}

FORBIDDEN_WORDS = {
    *("anew", "condemned", "crew", "crews", "doomed", "dress", "dressed", "farewell", "hear"),
    *("heard", "hears", "heed", "heeded", "heeds", "luck", "mend", "mended", "misfortune"),
    *("misfortunes", "namesake", "namesakes", "neighbour", "neighbours", "nobody", "obey"),
    *("obeyed", "said", "say", "says", "somebody", "spared", "spokesman", "tell", "tells"),
    *("tidied", "tidy", "told", "unlucky", "vouch", "vouched", "vouches", "watchman", "whoever"),
}


# People and speech do not explain a program: state what is returned, reported, set or written.
FORBIDDEN_PROSE = re.compile(
    r"(?<![\w-])(?:anew|as\s+everywhere|a\s+word\s+of|bear\s+with|beside|condemn(?:s|ed)|doomed"
    r"|for\s+ever|heed(?:s|ed)?|in\s+good\s+order|mend(?:s|ed)?|misfortunes?|namesakes?|nobody"
    r"|obey(?:s|ed)?|of\s+(?:its|their)\s+own|sa(?:y|ys|id|ying)|somebody|spokesman|tell(?:s|ing)?"
    r"|told|vouch(?:es|ed)?|whoever|whomever)(?![\w-])",
    re.IGNORECASE,
)
PROSE = ("src/grange", "docs", "examples", "bench", "scripts", "tests")
PROGRAMS = ("src/grange", "tests", "bench", "scripts", "examples")
# Decisions are records of their time; the first of these lists the words themselves.
EXEMPT_FROM_PROSE = ("tests/arch/test_names.py", "docs/adr/")


def inside(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def repeated(names: Iterator[str]) -> dict[str, int]:
    """The names that occur more often than once, and how often."""
    return {name: n for name, n in Counter(names).items() if n > 1}


def public_classes() -> Iterator[str]:
    for path in sources():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def module_names() -> Iterator[str]:
    for path in sources():
        folder, _, name = inside(path).removesuffix(".py").rpartition("/")
        if name not in CONVENTIONAL_MODULES and not folder.startswith(tuple(NAMED_AFTER_SUBJECT)):
            yield name


def identifiers(path: Path) -> Iterator[str]:
    """The names that a module defines: classes, functions, parameters, variables, attributes."""
    for node in nodes(path):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def words(text: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower()))


def test_public_class_names_are_unique() -> None:
    """One class name has one meaning in all of the source: rename the newer class."""
    assert repeated(public_classes()) == {}


def test_module_names_are_unique() -> None:
    """A file is found by its name alone, but for conventional names and those after a subject."""
    assert repeated(module_names()) == {}


def test_identifiers_avoid_forbidden_words() -> None:
    """Names say what a thing is or does; see the glossary for the words of the field."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in PROGRAMS
        for path in sources(ROOT / folder)
        if words(text(path)) & FORBIDDEN_WORDS  # parsing all the tests costs seconds
        for name in identifiers(path)
        if words(name) & FORBIDDEN_WORDS
    }
    assert sorted(found) == []


def prose() -> Iterator[Path]:
    """Each file that people read."""
    yield from sorted([*ROOT.glob("*.md"), *ROOT.glob("*.toml"), *ROOT.glob("*.yml")])
    yield ROOT / "Makefile"
    for top in PROSE:
        for path in sorted((ROOT / top).rglob("*")):
            inside = path.relative_to(ROOT)
            if (
                path.suffix in (".md", ".py", ".pyi", ".yaml", ".sh")
                and "__pycache__" not in inside.parts
            ):
                yield path


def test_prose_avoids_words_of_speech() -> None:
    """Docstrings, comments, messages and pages describe behaviour in the verbs of software."""
    found = [
        f"{name}: {match.group()}"
        for path in prose()
        if not (name := path.relative_to(ROOT).as_posix()).startswith(EXEMPT_FROM_PROSE)
        for match in FORBIDDEN_PROSE.finditer(text(path))
    ]
    assert not found, listed(found)
