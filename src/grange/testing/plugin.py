"""The pytest plugin of Grange: control planes and test sessions for tests that ask for them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_KUBECONFIG = "--grange-kubeconfig"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of Grange."""
    group = parser.getgroup("grange")
    group.addoption(
        _KUBECONFIG,
        metavar="FILE",
        help="Run test sessions on this cluster instead of one that is started for them.",
    )
    group.addoption(
        "--grange-sessions",
        action="store_true",
        help="Collect *.session.yaml: every session in them is a test.",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect files of sessions where that is wanted."""
    if not parent.config.getoption("--grange-sessions"):
        return None
    from grange.testing import collection

    if not collection.is_session_file(file_path):
        return None
    made: pytest.Collector = collection.SessionFile.from_parent(parent, path=file_path)
    return made


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the cluster of collected sessions."""
    if config.getoption("--grange-sessions", default=False):
        from grange.testing import collection

        collection.stop(config)


@pytest.fixture
def grange_cluster() -> Iterator[Any]:
    """A fresh ``grange.testing.Cluster`` with one node, stopped when the test ends."""
    from grange.testing import cluster

    with cluster() as running:
        yield running


@pytest.fixture
def session_run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A function that runs a test session: ``grange.testing.run_session`` without ``kubeconfig``.

    The cluster is that of ``--grange-kubeconfig``, else the fixture ``grange_cluster``, which a
    project may override for more nodes. A relative file is looked up next to the test's.
    """
    from grange.testing import run_session

    given = request.config.getoption(_KUBECONFIG)
    path = Path(str(given)) if given else request.getfixturevalue("grange_cluster").kubeconfig

    def run(manifest: Any, **settings: Any) -> Any:
        if isinstance(manifest, str | Path):
            manifest = request.path.parent / manifest
        return run_session(manifest, kubeconfig=path, **settings)

    return run
