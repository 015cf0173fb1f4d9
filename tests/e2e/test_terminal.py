"""What a person at a terminal sees while things start."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.planes import LIMIT_S, Plane, pod

from grange.app.daemon import default_interrupt

pytestmark = pytest.mark.e2e

COLOR = re.compile(r"\033\[(?:\d+;)*3[1-7]m")  # red to white
CURSOR_UP = re.compile(r"\033\[\d*A")


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


@contextmanager
def default_hangup() -> Iterator[None]:
    """Children that start inside end at SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


class Screen:
    """A verb on a terminal, while it runs: what it has shown so far."""

    def __init__(self, plane: Plane, *verb: str, within: tuple[str, ...] = ()) -> None:
        self.shown = ""
        self._end, theirs = pty.openpty()
        words = [*verb, "--kubeconfig", str(plane.kubeconfig)]
        try:
            # Tests in the background ignore SIGINT, under nohup SIGHUP, which is inherited.
            with default_interrupt(), default_hangup():
                self._process = subprocess.Popen(
                    [*within, sys.executable, "-m", "grange", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=theirs,
                    stderr=theirs,
                    env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"},
                    start_new_session=bool(within),
                )
        finally:
            os.close(theirs)

    def until(self, text: str) -> None:
        """Read until the text is there."""
        deadline = time.monotonic() + LIMIT_S
        while text not in self.shown:
            assert self._read(), (text, self.shown)
            assert time.monotonic() < deadline, (text, self.shown)

    def press(self, key: bytes) -> None:
        """Send what a key sends."""
        os.write(self._end, key)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the shell and the verb."""
        os.killpg(self._process.pid, number)

    def echoes_control(self) -> bool:
        """Whether the terminal shows Ctrl-C as ``^C``."""
        return bool(termios.tcgetattr(self._end)[3] & termios.ECHOCTL)

    def rest(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self._process.wait(LIMIT_S)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(LIMIT_S)
        os.close(self._end)

    def _read(self) -> bool:
        readable, _, _ = select.select([self._end], [], [], LIMIT_S)
        assert readable, self.shown
        try:
            piece = os.read(self._end, 1 << 16)
        except OSError:  # how Linux reports that the other end is closed
            return False
        self.shown += piece.decode(errors="replace")
        return bool(piece)


def test_live_board_of_a_job_follows_its_progress(plane: Plane, tmp_path: Path) -> None:
    script = f"""
        echo '25 epoch 1 of 4' > $GRANGE_PROGRESS_FILE
        until [ -e {tmp_path}/go ]; do sleep 0.1; done
        echo '75 epoch 3 of 4' > $GRANGE_PROGRESS_FILE
        until [ -e {tmp_path}/end ]; do sleep 0.1; done
    """
    spec = {"containers": [{"name": "main", "command": ["sh", "-c", script]}]}
    template = {"metadata": {"annotations": {"grange.dev/progress": ""}}, "spec": spec}
    roles = {"worker": {"restartPolicy": "Never", "template": template}}
    document = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": "train"},
        "spec": {"replicaSpecs": roles},
    }
    plane.grange("apply", "-f", "-", stdin=json.dumps(document))
    screen = Screen(plane, "job", "status", "train", "--watch")
    try:
        screen.until("[######------------------] 25% epoch 1 of 4")
        (tmp_path / "go").touch()
        screen.until("[##################------] 75% epoch 3 of 4")
        assert CURSOR_UP.search(screen.shown), "the board is redrawn in its place"
        (tmp_path / "end").touch()
        assert screen.rest() == 0
        assert re.search(r"Phase: +Succeeded", screen.shown)
    finally:
        screen.close()
        (tmp_path / "go").touch()
        (tmp_path / "end").touch()


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


# The terminal becomes that of a shell, which goes on after Ctrl-C and shows what is left of the settings.
CONTROL = "import fcntl, os, sys, termios; fcntl.ioctl(1, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
SHELL = 'trap : INT TERM HUP; "$@"; echo "code $?"; stty -a <&1'
WITHIN = (sys.executable, "-c", CONTROL, "sh", "-c", SHELL, "sh")


def test_interrupt_does_not_shift_a_live_board(plane: Plane) -> None:
    screen = Screen(plane, "wait", "pod/absent", "--for=condition=Ready", within=WITHIN)
    try:
        assert screen.echoes_control()
        screen.until("pod/absent")
        assert not screen.echoes_control()
        screen.press(b"\x03")
        screen.rest()
        board, ended, settings = screen.shown.partition("code 130")
        assert ended
        assert "^C" not in board
        assert "echoctl" in settings.split(), "the terminal is as it was before"
    finally:
        screen.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_leaves_the_terminal_as_it_was(plane: Plane, number: signal.Signals) -> None:
    screen = Screen(plane, "wait", "pod/absent", "--for=condition=Ready", within=WITHIN)
    try:
        screen.until("pod/absent")
        assert not screen.echoes_control()
        screen.signal(number)
        screen.rest()
        board, ended, settings = screen.shown.partition(f"code {128 + number}")
        assert ended, screen.shown
        assert board.rindex("\033[?25h") > board.rindex("\033[?25l"), "the cursor is shown"
        assert "echoctl" in settings.split()
    finally:
        screen.close()


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
