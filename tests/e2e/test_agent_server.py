"""The server of an agent on real sockets: who can connect, and who is believed to be a node."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from grange.agent.agent_streams import AgentStreams
from grange.agent.container_logs import AgentLogs
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime
from grange.agent.usage_sampler import UsageSampler
from grange.api import codec
from grange.api.certificate_requests import CertificateTemplate
from grange.api.http import Request, Response
from grange.api.kinds import NODE
from grange.api.kinds.node import Node
from grange.api.meta import Document
from grange.api.node_identity import serving_name
from grange.api.status import NotFound, ServiceUnavailable
from grange.app import certificates, node_certificates
from grange.app.agent_endpoints import USAGE_PATH, AgentEndpoints
from grange.app.agent_server import serve_agent
from grange.app.certificate_commands import MakeRequest
from grange.app.certificate_process import CertificateProcess
from grange.app.node_connections import ANSWER_MAX_BYTES, NodeConnections
from grange.app.node_credentials import NodeCredentials
from grange.app.node_revocations import NodeRevocations
from grange.app.settings import SettingsError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.offload import Inline
from grange.base.ratelimited import RateLimitedLogger
from grange.client.transports.http_transport import HTTP

pytestmark = pytest.mark.e2e
LOCAL = "127.0.0.1"


class Site:
    """A cluster's authority, and one agent with a server."""

    def __init__(self, directory: Path, clock: Clock, log: Logger) -> None:
        self._directory = directory
        self.clock = clock
        self.log = log
        self.keys = certificates.ensure(directory / "ca", names=["localhost"], now=clock.now())
        agent = directory / "agent" / "pki"
        agent.mkdir(parents=True)
        (agent / "ca.crt").write_bytes(self.keys.ca_pem)
        self.credentials = NodeCredentials(directory / "agent", CertificateProcess(Inline()), clock)
        self.nodes: dict[str, Document] = {}

    def sign(self, node: str, file: Path, *, is_client: bool = False) -> Path:
        names = () if is_client else (serving_name(node),)
        made = node_certificates.make(MakeRequest(f"system:node:{node}", "system:nodes", names))
        template = CertificateTemplate(
            f"system:node:{node}", "system:nodes", names, is_client, timedelta(days=1)
        )
        ca = self._directory / "ca"
        pem = node_certificates.sign(ca, made.request, template, self.clock.now())
        file.write_bytes(pem + made.key)
        return file

    @asynccontextmanager
    async def served(self, port: int | None = 0) -> AsyncIterator[int]:
        runtime = FakeRuntime(FakeMachine({}), self.clock)
        endpoints = AgentEndpoints(
            AgentLogs(runtime, self.clock),
            AgentStreams(runtime),
            UsageSampler(runtime, ("far",), self.clock),
            registry(),
            NodeRevocations(self.clock),
            RateLimitedLogger(self.log, self.clock),
        )
        context = self.credentials.serving_context()
        async with serve_agent(
            endpoints, context, LOCAL, port, clock=self.clock, log=self.log
        ) as found:
            self.publish("far", found)
            yield found

    def publish(self, name: str, port: int) -> None:
        self.nodes[name] = {
            "metadata": {"name": name},
            "status": {
                "addresses": [{"type": "InternalIP", "address": LOCAL}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            },
        }

    # --- in place of a client ------------------------------------------------------------------

    async def get(self, info: object, name: str) -> Node:
        assert info is NODE
        if name not in self.nodes:
            raise NotFound(name)
        return codec.convert(self.nodes[name], Node)

    async def ask(self, node: str, path: str) -> Response:
        connections = NodeConnections(lambda: self, self.keys.client_context, self.clock)  # type: ignore[arg-type,return-value]  # in place of a client
        async with connections.open(node) as transport:
            return await transport.send(Request("GET", path))


@pytest.fixture
def site(tmp_path: Path, clock: Clock, log: Logger) -> Site:
    return Site(tmp_path, clock, log)


async def test_api_server_reaches_the_agent(site: Site) -> None:
    site.sign("far", site.credentials.serving_file)
    async with site.served():
        assert (await site.ask("far", "/healthz")).body == b"ok"
        with pytest.raises(ServiceUnavailable, match="no usage is measured"):
            await site.ask("far", USAGE_PATH)


async def test_certificate_of_another_node_is_not_believed(site: Site) -> None:
    site.sign("other", site.credentials.serving_file)
    async with site.served():
        with pytest.raises(ServiceUnavailable, match="is not trusted"):
            await site.ask("far", "/healthz")


async def test_other_node_is_refused_and_strangers_cannot_connect(
    site: Site, tmp_path: Path
) -> None:
    site.sign("far", site.credentials.serving_file)
    context = ssl.create_default_context(cadata=site.keys.ca_pem.decode())
    async with site.served() as port:
        for certificate, code in (("other", 403), ("", 0)):
            if certificate:
                context.load_cert_chain(site.sign(certificate, tmp_path / "n", is_client=True))
            else:
                context = ssl.create_default_context(cadata=site.keys.ca_pem.decode())
            url, name = f"https://{LOCAL}:{port}", serving_name("far")
            transport = HTTP(url, ssl_context=context, server_name=name, clock=site.clock)
            try:
                answer = (await transport.send(Request("GET", "/metrics"))).status
            except ServiceUnavailable:
                answer = 0
            finally:
                await transport.close()
            assert answer == code


async def test_agent_serves_once_it_has_a_certificate(site: Site) -> None:
    context = site.credentials.serving_context()
    site.credentials.serving_context = lambda: context  # type: ignore[method-assign]  # keeps it
    async with site.served():
        with pytest.raises(ServiceUnavailable):
            await site.ask("far", "/healthz")
        context.load_cert_chain(site.sign("far", site.credentials.serving_file))
        assert (await site.ask("far", "/healthz")).status == 200


async def test_long_answer_is_cut(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.sign("far", site.credentials.serving_file)

    async def endless(self: AgentEndpoints, request: Request) -> Response:
        return Response(200, b"x" * (ANSWER_MAX_BYTES + 1))

    monkeypatch.setattr(AgentEndpoints, "handle", endless)
    async with site.served():
        with pytest.raises(ServiceUnavailable, match="is longer than"):
            await site.ask("far", "/healthz")


async def test_second_agent_takes_a_free_port(site: Site) -> None:
    async with site.served() as first, site.served(port=None) as second:
        async with site.served(port=None) as third:
            assert len({first, second, third}) == 3
        with pytest.raises(SettingsError, match=f"--port {first}: .* choose another port"):
            async with site.served(port=first):
                pass


@pytest.mark.parametrize("port", [0, -1, 70_000])
async def test_node_without_a_port_cannot_be_asked(site: Site, port: int) -> None:
    site.publish("far", port)
    with pytest.raises(ServiceUnavailable, match="serves no port"):
        await site.ask("far", "/healthz")
    with pytest.raises(ServiceUnavailable, match="no node gone"):
        await site.ask("gone", "/healthz")
