"""What programs get that listen on all addresses, by what the kernel allows."""

import json
import socket

import pytest

from grange.agent.container_runtime import RuntimeFailedError
from grange.agent.runtime_choices import REPLICAS, SHARED
from grange.agent.runtimes.process import networks


def answering(text: str) -> socket.socket:
    """The connection to a shim that gives this answer and ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        if text:
            theirs.send(text.encode())
    return ours


@pytest.mark.parametrize(("number", "chosen"), [(0, REPLICAS), (38, SHARED), (16, SHARED)])
def test_auto_network_is_what_the_kernel_allows(number: int, chosen: str) -> None:
    answer = json.dumps({"errno": number})
    assert networks.choose("auto", lambda: answering(answer), str) == chosen


@pytest.mark.parametrize("network", ["replicas", "addresses"])
def test_network_that_the_kernel_allows_is_as_asked(network: str) -> None:
    answer = json.dumps({"errno": 0})
    assert networks.choose(network, lambda: answering(answer), str) == network


@pytest.mark.parametrize(
    ("answer", "reason"),
    [('{"errno": 38}', "Function not implemented"), ("", "without an answer")],
)
def test_addresses_that_are_not_possible_are_refused(answer: str, reason: str) -> None:
    with pytest.raises(RuntimeFailedError, match=f"{reason}.*--network shared"):
        networks.choose("addresses", lambda: answering(answer), str)


def test_shared_network_needs_no_probe() -> None:
    def fail() -> socket.socket:
        raise AssertionError("probed")

    assert networks.choose("shared", fail, str) == "shared"


def test_network_namespaces_are_refused_with_the_reason() -> None:
    def fail() -> socket.socket:
        raise AssertionError("probed")

    assert networks.choose("netns", fail, lambda: "") == "netns"
    with pytest.raises(RuntimeFailedError, match=r"--network netns: no rights; .*--network auto"):
        networks.choose("netns", fail, lambda: "no rights")
