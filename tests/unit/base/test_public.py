"""The public interface: ``from grange import …``."""

import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import grange


@pytest.mark.parametrize("name", grange.__all__)
def test_public_name_loads_and_is_documented(name: str) -> None:
    value = getattr(grange, name)
    assert value is getattr(grange, name)
    if callable(value) and name != "Result":  # a union, which has no text
        assert pydoc.getdoc(value)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Clint'"):
        _ = grange.Clint  # type: ignore[attr-defined]  # misspelt on purpose


def test_import_loads_nothing_else() -> None:
    """Counted in modules, which is what makes an import slow: each container's supervisor makes it."""
    path = str(Path(grange.__file__).parents[1])
    code = (
        f"import sys; sys.path.append({path!r}); before = {{*sys.modules}}; import grange; "
        "print(sorted({*sys.modules} - before))"
    )
    words = [sys.executable, "-I", "-S", "-E", "-c", code]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['grange']"


def test_help_is_a_page_for_users() -> None:
    page = re.sub(".\x08", "", pydoc.render_doc(grange))  # bold is overstruck
    assert "from grange import POD, connect" in page
    assert "async def main" in page
    for name in ("class Client", "connect(kubeconfig:", "cluster(*, nodes: int = 1"):
        assert name in page, name
    assert not re.search(r"^    PUBLIC = ", page, re.MULTILINE)
