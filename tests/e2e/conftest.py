"""What end-to-end tests share."""

from collections.abc import Iterator

import pytest
from tests.e2e.planes import Plane
from tests.e2e.warm_cli import WarmCli
from tests.support import containerd

# scripts/setup_cri.sh reports what is missing.
_OF_IMAGES = ["test_images.py", "test_session_images.py"]
collect_ignore = [] if containerd.is_possible() else _OF_IMAGES


@pytest.fixture(scope="session", autouse=True)
def warm_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The process that verbs are forked from."""
    Plane.cli = WarmCli(tmp_path_factory.mktemp("warm") / "socket")
    yield
    Plane.cli.close()
