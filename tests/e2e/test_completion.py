"""Completion in the shells that exist here, against a real control plane."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.planes import GRANGE, Plane, eventually, pod

from grange.cli.verbs.completion import SHELLS

pytestmark = pytest.mark.e2e

BASH = """
source "$1"
COMP_WORDS=($2 "$3")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_grange_completion grange
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    made = Plane(tmp_path_factory.mktemp("completion") / "data")
    made.start()
    try:
        made.grange("apply", "-f", "-", stdin=pod("sleeper", "sleep", "1000"))
        yield made
    finally:
        made.stop()


def script(shell: str, path: Path) -> Path:
    """The completion script of a shell, in a file."""
    found = subprocess.run([*GRANGE, "completion", shell], check=True, capture_output=True)
    path.write_bytes(found.stdout)
    return path


def completed(plane: Plane, source: Path, words: str, incomplete: str) -> list[str]:
    """What bash offers for the last word of a line."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "KUBECONFIG": str(plane.kubeconfig),
    }
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH, "bash", str(source), words, incomplete],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return done.stdout.split()


def test_bash_completes_verbs_options_kinds_and_names(plane: Plane, tmp_path: Path) -> None:
    source = script("bash", tmp_path / "grange.bash")
    assert completed(plane, source, "grange", "des") == ["describe"]
    assert completed(plane, source, "grange get", "--field") == ["--field-selector"]
    assert completed(plane, source, "grange get", "confi") == ["configmaps"]
    # Names are asked of the server within two seconds, which a busy machine may need more than once for.
    for words, incomplete, name in (
        ("grange get pods", "sl", "sleeper"),
        ("grange why", "pod/", "pod/sleeper"),
    ):
        eventually(lambda: completed(plane, source, words, incomplete) == [name], name)  # noqa: B023  called at once


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_script_is_valid(shell: str, tmp_path: Path) -> None:
    source = script(shell, tmp_path / f"grange.{shell}")
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n", str(source)], check=True)
