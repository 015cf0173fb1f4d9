"""The pytest plugin of Grange: a separate control plane for each test that asks for one."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture
def grange_cluster() -> Iterator[Any]:
    """A fresh ``grange.testing.Cluster`` with one node, stopped when the test ends."""
    from grange.testing import cluster

    with cluster() as running:
        yield running
