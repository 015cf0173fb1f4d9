"""What a person at a terminal sees while things start."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S, Plane, pod

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
    probe = {"exec": {"command": ["test", "-e", "up"]}}
    manifest = pod(
        name, "sh", "-c", "sleep 0.7; touch up; sleep 60", container={"readinessProbe": probe}
    )
    return on_terminal(plane, "apply", "-f", "-", "--wait", stdin=manifest, environment=environment)


def on_terminal(
    plane: Plane,
    *verb: str,
    stdin: str = "",
    code: int = 0,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a verb shows on a terminal."""
    words = [*verb, "--kubeconfig", str(plane.kubeconfig)]
    ours, theirs = pty.openpty()
    kept = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "grange", *words],
            check=False,
            input=stdin.encode(),
            stdout=theirs,
            stderr=theirs,
            env={**kept, "TERM": "xterm-256color", **(environment or {})},
            timeout=LIMIT_S,
        )
    finally:
        os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 1 << 16):
            shown += piece
    except OSError:  # how Linux reports that the other end is closed
        pass
    finally:
        os.close(ours)
    assert done.returncode == code, shown
    return shown.decode()


def test_board_is_redrawn_in_place_with_optional_colors(plane: Plane) -> None:
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


def test_text_of_pods_does_not_command_the_terminal(plane: Plane) -> None:
    title, shown = "\033]0;owned\007", "\\x1b]0;owned\\x07"
    manifest = pod("hostile", "sh", "-c", r"printf '\033]0;owned\007\n'; exit 3")
    manifest = manifest.replace(
        '"name": "hostile"', '"name": "hostile", "annotations": {"a": "TITLE"}'
    )
    manifest = manifest.replace("TITLE", r"\u001b]0;owned\u0007")
    failed = on_terminal(plane, "apply", "-f", "-", "--wait", stdin=manifest, code=1)
    assert title not in failed
    assert shown in failed, "the last line of its output"
    for words in (
        ("describe", "pod/hostile"),
        ("why", "pod/hostile"),
        ("get", "pod", "hostile", "-o", "jsonpath={.metadata.annotations.a}"),
    ):
        reported = on_terminal(plane, *words)
        assert title not in reported, words
        assert shown in reported, words
    for output in ("json", "yaml"):
        reported = on_terminal(plane, "get", "pod", "hostile", "-o", output)
        assert "owned" in reported
        assert title not in reported
    raw = "jsonpath={.metadata.annotations.a}"
    assert plane.grange("get", "pod", "hostile", "-o", raw) == title, "in a pipe it is exact"
