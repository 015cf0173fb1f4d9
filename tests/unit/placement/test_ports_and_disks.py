"""Host ports: the conflict matrix and counted holdings."""

import msgspec
import pytest

from grange.api.kinds.pod import PodSpec
from grange.placement.ports_and_disks import (
    ANY,
    NO_HOLDINGS,
    HostPort,
    conflict,
    held,
    host_ports,
    released,
)


@pytest.mark.parametrize(
    ("have", "want", "answer"),
    [
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False),
        (("10.0.0.1", "TCP", 80), (ANY, "TCP", 80), True),
        ((ANY, "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        ((ANY, "TCP", 80), (ANY, "TCP", 80), True),
        ((ANY, "TCP", 80), (ANY, "UDP", 80), False),
        ((ANY, "TCP", 80), (ANY, "TCP", 81), False),
    ],
)
def test_check_113_wildcard_and_specific_addresses_conflict(
    have: tuple[str, str, int], want: tuple[str, str, int], answer: bool
) -> None:
    assert conflict(held(NO_HOLDINGS, [HostPort(*have)]), [HostPort(*want)]) is answer


def test_check_113_defaults_and_zero() -> None:
    """No address is the wildcard, no protocol is TCP, port 0 is none; sidecars count, init not."""
    spec = msgspec.convert(
        {
            "containers": [
                {
                    "name": "a",
                    "ports": [
                        {"containerPort": 1, "hostPort": 80, "protocol": ""},
                        {"containerPort": 2, "hostPort": 0},
                        {"containerPort": 3},
                    ],
                }
            ],
            "initContainers": [
                {
                    "name": "s",
                    "restartPolicy": "Always",
                    "ports": [{"containerPort": 1, "hostPort": 81}],
                },
                {"name": "i", "ports": [{"containerPort": 1, "hostPort": 82}]},
            ],
        },
        PodSpec,
    )
    assert host_ports(spec) == (HostPort(ANY, "TCP", 80), HostPort(ANY, "TCP", 81))


def test_a_port_stays_held_until_its_last_holder_leaves() -> None:
    port = HostPort(ANY, "TCP", 80)
    used = held(held(NO_HOLDINGS, [port]), [port])
    used = released(used, [port])
    assert conflict(used, [port])
    used = released(used, [port])
    assert not conflict(used, [port])
    assert released(used, [port]) == NO_HOLDINGS
