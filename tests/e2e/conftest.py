"""What end-to-end tests share."""

from collections.abc import Iterator

import pytest
from tests.e2e.planes import Plane
from tests.e2e.warm_cli import WarmCli


@pytest.fixture(scope="session", autouse=True)
def warm_cli() -> Iterator[None]:
    """The process that verbs are forked from."""
    Plane.cli = WarmCli()
    yield
    Plane.cli.close()
