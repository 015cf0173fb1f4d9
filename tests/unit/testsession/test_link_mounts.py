"""Where the mounts of pods are links: by the addresses that the nodes give."""

import pytest

from grange.api.kinds.node import Node, NodeSpec
from grange.api.meta import ObjectMeta
from grange.controllers.testsession.link_mounts import mounts_are_links


@pytest.mark.parametrize(
    ("networks", "links"),
    [
        ((), False),
        (("127.9.0.0/16",), True),
        (("127.9.0.0/16", "127.10.0.0/16"), True),
        (("127.9.0.0/16", "10.244.0.0/24"), False),
        (("10.244.0.0/24",), False),
        (("127.9.0.0/16", ""), False),
        (("fd00::/64",), False),
    ],
)
def test_mounts_are_links_where_all_addresses_are_loopback(
    networks: tuple[str, ...], links: bool
) -> None:
    nodes = [Node(metadata=ObjectMeta(name="n"), spec=NodeSpec(pod_cidr=one)) for one in networks]
    assert mounts_are_links(nodes) is links
