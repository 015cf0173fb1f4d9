"""Every command of README.md and the pages runs, in the order in which a reader types it.

A page runs in a scratch directory that holds the repository's examples and the files that the page
shows, with its own home. Only five things differ from what a reader does: ``grange`` runs in
processes that have loaded it already, ``grange up`` listens on a free port, verbs that wait have the
time of a busy machine, what ``NOT_RUN`` lists is left out for the reason that stands there, and what
``STAND_INS`` lists is replaced.
"""

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e import kubectl
from tests.e2e.planes import LIMIT_S, Plane

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
WARM_CLIENT = Path(__file__).with_name("warm_client.py")
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *ROOT.glob("docs/*/*.md"), *ROOT.glob("examples/*/README.md"))
    if "```console" in path.read_text()
)
_FOREIGN = "needs a Kubernetes cluster"
_TRACE = "needs a trace that is not part of the repository"
_SELF = "sets up the environment that this test runs in"
_PAGES_BEFORE = {  # whose files a page builds on
    "docs/tutorials/operator-test.md": ["docs/tutorials/controller.md"],
}
# Installs nothing: the environment of this test has the package.
_INSTALLED = f"echo {sysconfig.get_path('purelib')} >$(echo app/venv/lib/*/site-packages)/here.pth"
# For a page that speaks of a control plane and starts none.
SERVED = (
    "grange up --nodes 3 >up.out 2>&1 &\n"
    "until [ -s up.out ] && grange farm status | grep -q Active; do sleep 0.05; done"
)
STAND_INS = {
    # The one that pip would be installed for is replaced, too.
    ("docs/tutorials/app.md", "python3 -m venv app/venv"): "python3 -m venv --without-pip app/venv",
    ("docs/tutorials/app.md", "app/venv/bin/pip install aiohttp"): _INSTALLED,
}
NOT_RUN = {
    ("README.md", "git clone … grange && cd grange"): _SELF,
    ("README.md", "make run"): _SELF,
    ("README.md", "pip install ."): _SELF,
    (
        "docs/how-to/kubernetes.md",
        "grange install --image registry.example/grange:0.1.0 | kubectl apply -f -",
    ): _FOREIGN,
    ("docs/how-to/kubernetes.md", "kubectl -n grange-system get pods"): _FOREIGN,
    ("docs/how-to/kubernetes.md", "kubectl apply -f web.yaml"): _FOREIGN,
    ("docs/how-to/kubernetes.md", "kubectl get grc,gru,podgroups,queues -A"): _FOREIGN,
    ("docs/how-to/kubernetes.md", "grange farm status"): _FOREIGN,
    ("docs/how-to/kubernetes.md", "kubectl delete grc --all -A --cascade=orphan"): _FOREIGN,
    ("docs/how-to/kubernetes.md", "grange install --only crds | kubectl delete -f -"): _FOREIGN,
    (
        "docs/how-to/kubernetes.md",
        "grange install --only deployment --image … | kubectl delete -f -",
    ): _FOREIGN,
    ("docs/how-to/kubernetes.md", "grange install --only rbac | kubectl delete -f -"): _FOREIGN,
    ("docs/how-to/operate.md", "python3 -m venv /opt/grange"): _SELF,
    (
        "docs/how-to/operate.md",
        "/opt/grange/bin/pip install --require-hashes -r requirements.lock",
    ): _SELF,
    (
        "docs/how-to/operate.md",
        "/opt/grange/bin/pip install --no-deps --no-build-isolation .",
    ): _SELF,
    (
        "docs/how-to/simulate.md",
        "grange simulate --nodes openb_node_list_gpu_node.csv --pods openb_pod_list_default.csv "
        "--policy random,dot-product,gpu-clustering,gpu-packing,best-fit,fgd --inflate 130 "
        "--plot openb.svg",
    ): _TRACE,
}
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^```\w+ title=\"([^\"]+)\"\n(.*?)^```", re.MULTILINE | re.DOTALL)
_STABLE = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True)
class Command:
    """A command of a page.

    Attributes:
        text: as one line, without its comment.
        shown: the output that the page shows.
    """

    text: str
    shown: tuple[str, ...]

    def stable_words(self) -> set[str]:
        """Words of the output that do not depend on times, names of nodes or numbers."""
        words = (word for line in self.shown for word in line.split())
        return {word for word in words if _STABLE.search(word) and not re.search(r"\d", word)}


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in a language."""
    return [code for name, code in _BLOCK.findall((ROOT / page).read_text()) if name == language]


def commands(page: str) -> Iterator[Command]:
    """The commands of a page, in order."""
    for code in blocks(page, "console"):
        text, shown = "", list[str]()
        for line in code.replace("\\\n", " ").splitlines():
            if not line.startswith("$ "):
                shown.append(line)
                continue
            if text:
                yield Command(text, tuple(shown))
            text, shown = re.sub(r"\s+", " ", re.sub(r"\s#\s.*", "", line[2:])).strip(), []
        yield Command(text, tuple(shown))


def script(page: str) -> str:
    """A shell script that runs the page's commands and reports each one's exit code."""
    lines = []
    for at, command in enumerate(commands(page)):
        if (page, command.text) not in NOT_RUN:
            text = STAND_INS.get((page, command.text), command.text)
            lines.append(f"{{ {text}\n}} >out.{at} 2>&1; echo $? >code.{at}")
    return "\n".join(lines)


def write_files(page: str, folder: Path) -> None:
    """Write the files that a page, and those before it, show with their names."""
    for source in (*_PAGES_BEFORE.get(page, ()), page):
        for name, text in _FILE.findall((ROOT / source).read_text()):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Path]:
    """A scratch directory like a checkout, with programs, examples and an environment to activate."""
    for name, program, words in (
        (
            "grange",
            f"{sys.executable} -I -S {WARM_CLIENT} {Plane.cli.path}",
            '[ "$1" = up ] && set -- "$@" --listen 127.0.0.1:0\n'
            f'case " $* " in " wait "*|" delete "*|*" --wait "*) set -- "$@" --timeout {LIMIT_S:.0f}s; esac',
        ),
        ("kubectl", str(kubectl.find()), ""),
        ("python3", sys.executable, ""),
    ):
        file = tmp_path / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\n{words}\nexec {program} "$@"\n')
        file.chmod(0o755)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    activate = tmp_path / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text("")
    try:
        yield tmp_path
    finally:
        subprocess.run(
            [tmp_path / "bin" / "grange", "down"],
            check=False,
            env=environment(tmp_path),
            capture_output=True,
            timeout=LIMIT_S,
        )


def environment(desk: Path) -> dict[str, str]:
    """Of a user who has nothing but this directory."""
    path = f"{desk / 'bin'}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(desk), "LANG": "C.UTF-8"}


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_run_as_they_stand_there(page: str, desk: Path) -> None:
    text = script(page)
    if not text:
        assert all((page, command.text) in NOT_RUN for command in commands(page))
        return
    write_files(page, desk)
    if "grange up" not in text:
        text = f"{SERVED}\n{text}"
    subprocess.run(
        ["bash", "-c", text], check=False, cwd=desk, env=environment(desk), timeout=2 * LIMIT_S
    )
    for at, command in enumerate(commands(page)):
        if (page, command.text) in NOT_RUN:
            continue
        out = (desk / f"out.{at}").read_text()
        assert (desk / f"code.{at}").read_text() == "0\n", (command.text, out)
        missing = sorted(word for word in command.stable_words() if word not in out)
        assert not missing, (command.text, missing, out)


def test_what_is_not_run_stands_on_its_page() -> None:
    for page, text in (*NOT_RUN, *STAND_INS):
        assert text in {command.text for command in commands(page)}, (page, text)


def test_readme_has_no_commands_outside_of_its_blocks() -> None:
    """Else they would not run here; those that a sentence repeats are in a block, too."""
    text = _BLOCK.sub("", (ROOT / "README.md").read_text())
    inline = re.findall(r"`((?:grange|kubectl|make) [^`]+)`", text)
    first = {tuple(shlex.split(command.text)[:2]) for command in commands("README.md")}
    known = {"make docs", "grange --help"}
    assert {words for words in inline if tuple(words.split()[:2]) not in first} <= known


@pytest.mark.parametrize("page", ["README.md", "docs/reference/testing.md"])
def test_python_of_a_page_runs_as_it_stands_there(page: str, tmp_path: Path) -> None:
    file = tmp_path / "test_page.py"
    code = "\n\n".join(blocks(page, "python"))
    if "def test_" not in code:
        lines = "\n".join(f"    {line}" for line in code.splitlines())
        code = f"def test_page():\n{lines}\n"
    file.write_text(code)
    # Pytest rewrites the assertions of all of a package that brings a plugin; only the exit code counts here.
    quick = ["-p", "no:cacheprovider", "--assert", "plain"]
    words = ["-m", "pytest", "-q", *quick, "-c", os.devnull, str(file)]
    done = subprocess.run(
        [sys.executable, *words, "--rootdir", str(tmp_path)],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
