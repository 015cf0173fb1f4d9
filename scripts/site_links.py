"""Hook of mkdocs: what pages link to outside of ``docs`` becomes a text file of the site.

A page links to a source file as a reader of the repository needs it (``../../src/grange/…``). The
site holds a copy of each such file below ``files/``, so that the link works there as well. Links to
folders become plain text.
"""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
_COPIES = "files"


def _outside(source: str, target: str, docs: Path) -> Path | None:
    """The path in the repository that a link of a page leads to, if it leads out of ``docs``."""
    path = Path(os.path.normpath(docs / Path(source).parent / target))
    return None if path.is_relative_to(docs) else path.relative_to(docs.parent)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a copy of each file outside of ``docs`` that a page links to."""
    docs = Path(config.docs_dir)
    found = {
        path
        for page in files.documentation_pages()
        for _, target, _ in _LINK.findall(page.content_string)
        if (path := _outside(page.src_uri, target, docs)) and (docs.parent / path).is_file()
    }
    for path in sorted(found):
        name = f"{_COPIES}/{path.as_posix()}.txt"
        files.append(File.generated(config, name, abs_src_path=str(docs.parent / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links that lead out of ``docs`` to the copies."""
    docs = Path(config.docs_dir)
    source = page.file.src_uri

    def inside(link: re.Match[str]) -> str:
        text, target, _ = link.groups()
        path = _outside(source, target, docs)
        if path is None:
            return link[0]
        copy = f"{_COPIES}/{path.as_posix()}.txt"
        if files.get_file_from_path(copy) is None:
            return text
        return f"[{text}]({os.path.relpath(copy, Path(source).parent)})"

    return _LINK.sub(inside, markdown)
