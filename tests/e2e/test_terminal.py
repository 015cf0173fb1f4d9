"""What a person at a terminal sees while things start."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.planes import Plane, pod

pytestmark = pytest.mark.e2e

COLOR = re.compile(r"\033\[(?:\d+;)*3[1-7]m")  # red to white
CURSOR_UP = re.compile(r"\033\[\d*A")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    made = Plane(tmp_path / "data")
    made.start()
    try:
        yield made
    finally:
        made.stop()


def seen(plane: Plane, name: str, **environment: str) -> str:
    """What ``grange apply --wait`` shows on a terminal, escape sequences and all."""
    ours, theirs = pty.openpty()
    probe = {"exec": {"command": ["test", "-e", "up"]}}
    manifest = pod(
        name, "sh", "-c", "sleep 0.7; touch up; sleep 60", container={"readinessProbe": probe}
    )
    words = ["apply", "-f", "-", "--wait", "--kubeconfig", str(plane.kubeconfig)]
    kept = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "grange", *words],
            check=False,
            input=manifest.encode(),
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env={**kept, "TERM": "xterm-256color", **environment},
            timeout=30,
        )
    finally:
        os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 1 << 16):
            shown += piece
    except OSError:  # how Linux tells that the other end is closed
        pass
    finally:
        os.close(ours)
    assert done.returncode == 0, shown
    return shown.decode()


def test_a_board_is_redrawn_in_place_and_has_colors_unless_they_are_unwanted(plane: Plane) -> None:
    colored = seen(plane, "one")
    assert "pod/one" in colored
    assert "✔" in colored
    assert CURSOR_UP.search(colored) or "\033[2K" in colored
    assert COLOR.search(colored)
    plain = seen(plane, "two", NO_COLOR="1")
    assert "pod/two" in plain
    assert "✔" in plain
    assert "\033[2K" in plain
    assert not COLOR.search(plain)
