"""Ports as they are written, by number and by name, of pods and of Services."""

import click
import pytest

from grange.api.meta import Document
from grange.cli.port_choice import PortPair, port_behind_service, port_of_pod, read_pair

POD: Document = {
    "metadata": {"name": "web-1"},
    "spec": {
        "containers": [
            {"name": "main"},
            {
                "name": "web",
                "ports": [
                    {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"name": "http", "containerPort": 8123},
                    {"containerPort": 9},
                ],
            },
        ]
    },
}
PORTS = [
    {"name": "http", "port": 80, "targetPort": "http"},
    {"port": 81},
    {"port": 82, "targetPort": 8},
]
SERVICE: Document = {"metadata": {"name": "web"}, "spec": {"ports": PORTS}}


@pytest.mark.parametrize(
    ("word", "pair"),
    [
        ("8080", PortPair(8080, "8080")),
        ("8080:80", PortPair(8080, "80")),
        (":80", PortPair(0, "80")),
        ("8080:http", PortPair(8080, "http")),
        ("http", PortPair(0, "http")),
    ],
)
def test_pairs_are_read(word: str, pair: PortPair) -> None:
    assert read_pair(word) == pair


@pytest.mark.parametrize("word", ["", ":", "80:", "0", "65536:80", "80:65536", "a:80", "-1:80"])
def test_other_words_are_refused(word: str) -> None:
    with pytest.raises(click.UsageError, match="must be PORT, LOCAL:REMOTE or :REMOTE"):
        read_pair(word)


def test_ports_of_pods_have_names() -> None:
    assert (port_of_pod(POD, "http"), port_of_pod(POD, "7")) == (8123, 7)
    for name in ("dns", "other"):
        with pytest.raises(click.ClickException, match=f"pod web-1: no port {name}; it has http"):
            port_of_pod(POD, name)


@pytest.mark.parametrize(("remote", "found"), [("80", 8123), ("http", 8123), ("81", 81), ("82", 8)])
def test_ports_of_services_lead_to_those_of_pods(remote: str, found: int) -> None:
    assert port_behind_service(SERVICE, POD, remote) == found


def test_unknown_ports_of_services_are_explained() -> None:
    with pytest.raises(click.ClickException, match="no port 8123; it has 80, http, 81, 82"):
        port_behind_service(SERVICE, POD, "8123")
