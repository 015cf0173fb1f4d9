"""What end-to-end tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.planes import Plane
from tests.e2e.warm_cli import WarmCli
from tests.support import containerd, openssh_hosts

# scripts/setup_cri.sh and setup_sshd.sh report what is missing.
_OF_IMAGES = [
    "test_image_leaks.py",
    "test_image_pulls.py",
    "test_image_replicas.py",
    "test_images.py",
    "test_session_images.py",
]
collect_ignore = [
    *([] if containerd.is_possible() else _OF_IMAGES),
    *([] if openssh_hosts.program() else ["test_openssh.py"]),
]


# They wait for minutes: the others use that time, if these are started first.
_LONG = {"test_make_run_does_what_the_readme_promises", "test_lost_machine_is_replaced_and_returns"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the long tests first."""
    items.sort(key=lambda item: item.name not in _LONG)


@pytest.fixture(scope="session", autouse=True)
def warm_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The process that verbs are forked from."""
    Plane.cli = WarmCli(tmp_path_factory.mktemp("warm") / "socket")
    yield
    Plane.cli.close()


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    """A control plane for one test."""
    with Plane(tmp_path / "data") as made:
        yield made
