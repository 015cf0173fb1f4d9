"""What the repository promises: documents that resolve, and nothing of the machine it was made on."""

import re
from pathlib import Path

import pytest
from tests.support.source_tree import ROOT, listed, text

from grange.api.kinds import BUILT_IN

FOLDERS = ("src", "tests", "docs", "bench", "scripts", "examples", ".ci")
BINARY = {".png", ".gz", ".db", ".pyc"}

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)


def tree() -> list[Path]:
    # In a further worktree .git is a file that names the first one.
    found = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    for folder in FOLDERS:
        found += [p for p in (ROOT / folder).rglob("*") if p.is_file()]
    return sorted(p for p in found if p.suffix not in BINARY and "__pycache__" not in p.parts)


def documents() -> list[Path]:
    return [path for path in tree() if path.suffix == ".md"]


def anchor(heading: str) -> str:
    words = re.sub(r"[`*_]", "", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def test_the_documents_of_the_house_exist() -> None:
    expected = (
        *("README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "Makefile"),
        *(
            "docs/explanation/architecture.md",
            "docs/reference/glossary.md",
            "tests/arch/lineage.md",
        ),
        "docs/adr/0000-template.md",
    )
    missing = [name for name in expected if not (ROOT / name).is_file()]
    assert not missing, listed(missing)


def test_nothing_large_or_built_is_kept() -> None:
    """A wheel of another project lay in the repository for a day."""
    kept = [path for path in tree() if path.suffix in {".whl", ".so", ".egg", ".zip"}]
    large = [path for path in tree() if path.stat().st_size > 300_000]
    assert not kept + large, listed(kept + large)


def test_links_between_documents_resolve() -> None:
    broken = []
    for document in documents():
        for target in LINK.findall(text(document)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, fragment = target.partition("#")
            other = (document.parent / name).resolve() if name else document
            if not other.exists():
                broken.append(f"{document.relative_to(ROOT)}: {target}")
            elif fragment and other.suffix == ".md":
                anchors = {anchor(text) for text in HEADING.findall(other.read_text())}
                if fragment not in anchors:
                    broken.append(f"{document.relative_to(ROOT)}: {target}")
    assert not broken, listed(broken)


def test_reference_knows_every_built_in_kind() -> None:
    text = (ROOT / "docs" / "reference" / "kinds.md").read_text()
    missing = [info.kind for info in BUILT_IN if f"\n## {info.kind}\n" not in text]
    assert not missing, listed(missing)


def test_glossary_has_few_words_each_with_its_reason() -> None:
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    words = [row for row in rows if row[0] != "word"]
    assert 0 < len(words) < 30
    assert not [row for row in words if len(row) != 3 or not all(row)]


def test_decisions_are_numbered_and_complete() -> None:
    folder = ROOT / "docs" / "adr"
    wanted = ("## Status", "## Context", "## Decision", "## Consequences")
    wrong = []
    numbers = []
    for path in sorted(folder.glob("*.md")):
        if path.name == "README.md":
            continue
        match = re.fullmatch(r"(\d{4})-[a-z0-9-]+\.md", path.name)
        if match is None or any(heading not in path.read_text() for heading in wanted):
            wrong.append(path.name)
        else:
            numbers.append(int(match.group(1)))
    assert not wrong, listed(wrong)
    assert numbers == list(range(len(numbers)))


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-docs.lock"])
def test_lock_has_hashes_and_no_addresses(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    pins = re.findall(r"^[A-Za-z0-9._-]+(?:\[[^\]]*\])?==", text, re.MULTILINE)
    assert len(pins) > 10
    assert text.count("--hash=sha256:") >= len(pins)


def test_nothing_shows_of_the_machine_or_the_index_it_came_from() -> None:
    """Built from pieces, so that this file does not match either."""
    marks = [
        *("/wo" + "rk/", "tmp/" + "plan", "/ro" + "ot/", "/ho" + "me/"),
        *("py" + "pi.", "python" + "hosted", "--" + "index-url", "arti" + "factory"),
    ]
    found = [
        f"{path.relative_to(ROOT)}: {mark}"
        for path in tree()
        for mark in marks
        if mark in text(path)
    ]
    assert not found, listed(found)


def test_no_page_holds_a_place_still_to_be_filled() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    empty = [str(page) for page in pages if re.search(r"@[A-Z]+@", page.read_text())]
    assert not empty, empty
    assert "| met |" in (ROOT / "docs" / "reference" / "benchmarks.md").read_text(), (
        "figures are recorded"
    )


def test_every_page_is_in_the_navigation_by_its_kind() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r"^ +- (?:[\w -]+: )?(\S+\.md)$", site, re.MULTILINE)
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    assert sorted(named) == sorted(pages - {"adr/0000-template.md"})
    kinds = {"tutorials", "how-to", "reference", "explanation", "adr"}
    assert {page.partition("/")[0] for page in pages} <= {*kinds, "index.md"}


def test_page_of_clients_names_the_versions_that_are_run() -> None:
    page = (ROOT / "docs" / "reference" / "clients.md").read_text()
    lock = (ROOT / "requirements.lock").read_text()
    rows = dict(re.findall(r"^\| ([\w ]+) \| ([\d.]+) \|", page, re.MULTILINE))
    packages = {"official Python client": "kubernetes"} | {
        name: name for name in ("kr8s", "lightkube", "kopf")
    }
    wrong = []
    for client, package in packages.items():
        locked = re.search(rf"^{package}==(\S+)", lock, re.MULTILINE)
        if locked is None or not f"{locked[1]}.".startswith(f"{rows.get(client)}."):
            wrong.append(f"{client}: {rows.get(client)} on the page, {locked and locked[1]} locked")
    assert not wrong, listed(wrong)
