"""The role ``machines``: the node controller with the providers and the bootstrap of this process."""

from collections.abc import Callable
from urllib.parse import urlsplit

from grange.api import x509_facts
from grange.app import local_machines
from grange.app.machine_bootstrap import JoinBootstrap
from grange.app.settings import Settings
from grange.base.clock import Clock
from grange.client.client import Client
from grange.machines.bootstrap.agent_package import AgentPackage
from grange.machines.controller.node_controller import NodeController, NodeControllerTools
from grange.reconcile.deps import Deps
from grange.reconcile.farm.leader_election import ElectedService


def of_control_plane(deps: Deps, settings: Settings, url: str, ca_pem: bytes) -> NodeController:
    """The controller of ``grange up``; machines may be processes of this computer.

    Args:
        deps: of the controller.
        settings: of the control plane.
        url: of the API, as this computer reaches it.
        ca_pem: certificate of its authority.
    """
    pin = x509_facts.read(ca_pem).pin
    tools = NodeControllerTools(
        settings={"local": local_machines.provider_settings(settings, url, pin)},
        bootstrap=join_bootstrap(deps.client, settings, url, pin, deps.clock),
    )
    return NodeController(deps, tools)


def join_bootstrap(
    client: Client, settings: Settings, url: str, pin: str, clock: Clock
) -> JoinBootstrap:
    """Prepares machines that join this control plane, with the package of the settings."""
    package = AgentPackage(settings.agent_version, settings.agent_url)
    return JoinBootstrap(client, url_elsewhere(settings, url), pin, clock, package)


def url_elsewhere(settings: Settings, url: str) -> str:
    """The URL by which other machines reach the API: by a name that they know."""
    if not settings.tls_names:
        return url
    name, port = settings.tls_names[0], urlsplit(url).port
    return f"https://[{name}]:{port}" if ":" in name else f"https://{name}:{port}"


def elsewhere(
    server: str, ca_pem: bytes, package: AgentPackage
) -> Callable[[Deps], ElectedService]:
    """The controller of ``grange controllers``, for a cluster that runs elsewhere.

    Args:
        server: URL of the API server.
        ca_pem: certificate of its authority; empty where it is known otherwise.
        package: what machines install.
    """

    def made(deps: Deps) -> ElectedService:
        bootstrap = bootstrap_elsewhere(deps.client, server, ca_pem, deps.clock, package)
        return NodeController(deps, NodeControllerTools(bootstrap=bootstrap))

    return made


def bootstrap_elsewhere(
    client: Client, server: str, ca_pem: bytes, clock: Clock, package: AgentPackage
) -> JoinBootstrap:
    """Prepares machines that join a cluster that runs elsewhere."""
    pin = x509_facts.read(ca_pem).pin if ca_pem else ""
    return JoinBootstrap(client, server, pin, clock, package)
