"""The public interface: ``from grange import …``."""

import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import grange
from grange.api.kinds import BUILT_IN
from grange.api.scheme import AnyKind

OURS = [info for info in BUILT_IN if info.group == "grange.dev"]


@pytest.mark.parametrize("info", OURS, ids=lambda info: info.kind)
def test_kind_of_ours_has_public_names(info: AnyKind) -> None:
    assert getattr(grange, info.kind.upper()) is info
    assert getattr(grange, info.view.__name__) is info.view
    spec = get_type_hints(info.view)["spec"]
    assert getattr(grange, spec.__name__) is spec


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
