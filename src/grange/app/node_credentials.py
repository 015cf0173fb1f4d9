"""How a machine joins: the authority that it trusts, and the certificate of its node.

::

    <directory>/pki/
        ca.crt          the authority of the cluster, checked against the hash when it was fetched
        request.json    the key and the request that are not answered yet
        node.pem        certificate and key of the node
"""

import base64
import hashlib
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from grange.api import codec, x509_facts
from grange.api.http import Request
from grange.api.kinds import CERTIFICATESIGNINGREQUEST
from grange.api.kinds.certificatesigningrequest import (
    CLIENT_USAGE,
    DENIED,
    FAILED,
    NODE_CLIENT,
    SIGNATURE_USAGE,
    CertificateSigningRequest,
)
from grange.api.meta import Document
from grange.api.node_identity import NODE_PREFIX, NODES
from grange.api.status import AlreadyExists, ApiError, Forbidden, Unauthorized
from grange.app.certificate_process import CertificateProcess, MadeRequest, MakeRequest
from grange.app.datadir import make_directory, write
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.client.client import Client
from grange.client.transports.http_transport import HTTP, tls_context

_CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
_ANSWER_S = 60.0
_POLL_S = 0.1


class JoinFailed(GrangeError):
    """The machine cannot join; the message has the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class JoinTarget:
    """What a machine joins, and as what.

    Attributes:
        server: URL of the API server.
        node: the name of the node.
        token: bootstrap token; empty where there is a certificate already.
        ca_hash: pin of the authority; empty where ``ca_file`` has it.
        ca_file: certificate of the authority.
    """

    server: str
    node: str
    token: str = ""
    ca_hash: str = ""
    ca_file: Path | None = None


class NodeCredentials:
    """The credentials in the data directory of an agent.

    Args:
        data_dir: of the agent.
        process: makes keys.
        clock: time.
    """

    def __init__(self, data_dir: Path, process: CertificateProcess, clock: Clock) -> None:
        self._directory = data_dir / "pki"
        self._ca = self._directory / "ca.crt"
        self._pending = self._directory / "request.json"
        self._node = self._directory / "node.pem"
        self._process = process
        self._clock = clock

    def has_certificate(self) -> bool:
        """Whether there is a certificate that has not ended."""
        try:
            facts = x509_facts.read(self._node.read_bytes())
        except (OSError, x509_facts.CertificateUnreadable):
            return False
        return self._clock.now() < facts.not_after

    def context(self) -> ssl.SSLContext:
        """TLS for the node: trusts the authority and shows the certificate."""
        context = tls_context(self._ca.read_bytes())
        context.load_cert_chain(self._node)
        return context

    @property
    def file(self) -> Path:
        """The certificate and the key of the node."""
        return self._node

    async def renew(self, client: Client, target: JoinTarget) -> None:
        """Get another certificate, as the node that the present one names.

        Raises:
            JoinFailed: the request is refused or not answered.
            ApiError: the server cannot be reached or refuses the node.
        """
        await self._request(client, target)

    async def join(self, target: JoinTarget) -> None:
        """Get a certificate for the node.

        Raises:
            JoinFailed: the server refuses, cannot be reached or is another one.
        """
        if not target.token:
            raise JoinFailed(
                f"no certificate of the node in {self._directory}: a machine joins with a token; "
                "create one with grange token create and give it with --token"
            )
        make_directory(self._directory)
        write(self._ca, await self._authority(target))
        transport = HTTP(
            target.server, target.token, ssl_context=tls_context(self._ca.read_bytes())
        )
        try:
            await self._request(Client(transport, clock=self._clock), target)
        except (Unauthorized, Forbidden) as error:
            raise JoinFailed(
                f"{target.server} refuses the token: it is wrong or has ended; create one with "
                "grange token create"
            ) from error
        except ApiError as error:
            raise JoinFailed(f"cannot join: {error}; see --server") from error
        finally:
            await transport.close()

    async def _authority(self, target: JoinTarget) -> bytes:
        """The certificate of the authority, checked against the hash if there is one."""
        if target.ca_file is not None:
            try:
                pem = target.ca_file.read_bytes()
            except OSError as error:
                raise JoinFailed(f"--ca-file {target.ca_file}: {error.strerror}") from error
        else:
            pem = await self._fetch_authority(target.server)
        try:
            pin = x509_facts.read(pem).pin
        except x509_facts.CertificateUnreadable as error:
            raise JoinFailed(f"the authority of {target.server}: {error}") from error
        if target.ca_hash and pin != target.ca_hash:
            raise JoinFailed(
                f"--ca-hash: {target.server} has an authority with the hash {pin}: it is another "
                "server than the token is of, or something stands between; nothing was sent to it"
            )
        return pem

    async def _fetch_authority(self, server: str) -> bytes:
        # Nothing secret is sent before the authority is checked.
        transport = HTTP(server, ssl_context=tls_context(insecure=True))
        try:
            answer = await transport.send(Request("GET", _CLUSTER_INFO))
            document = codec.decode_document(answer.body)
            info = codec.decode_document(document["data"]["kubeconfig"].encode())
            data = info["clusters"][0]["cluster"]["certificate-authority-data"]
            return base64.b64decode(data)
        except ApiError as error:
            raise JoinFailed(f"cannot join: {error}; see --server") from error
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise JoinFailed(
                f"{server} publishes no authority: is it a control plane of Grange? See --server"
            ) from error
        finally:
            await transport.close()

    async def _request(self, client: Client, target: JoinTarget) -> None:
        made = await self._pending_request(target)
        name = f"node-csr-{hashlib.sha256(made.request).hexdigest()[:32]}"
        spec: Document = {
            "request": base64.b64encode(made.request).decode(),
            "signerName": NODE_CLIENT,
            "usages": [SIGNATURE_USAGE, CLIENT_USAGE],
        }
        with suppress(AlreadyExists):  # asked before the agent was started again
            await client.create(
                CERTIFICATESIGNINGREQUEST, {"metadata": {"name": name}, "spec": spec}
            )
        try:
            async with self._clock.timeout(_ANSWER_S):
                pem = await self._certificate(client, name)
        except TimeoutError:
            raise JoinFailed(
                f"nothing has answered the request {name} for {_ANSWER_S:.0f} s: do the controllers "
                "of the control plane run?"
            ) from None
        facts = x509_facts.read(pem)
        if not facts.not_before <= self._clock.now() < facts.not_after:
            raise JoinFailed(
                f"the certificate is valid from {facts.not_before} to {facts.not_after}, and here it "
                f"is {self._clock.now():%Y-%m-%d %H:%M:%S+00:00}: set the clocks of both machines"
            )
        write(self._node, pem + made.key)
        self._pending.unlink(missing_ok=True)

    async def _pending_request(self, target: JoinTarget) -> MadeRequest:
        """The key and the request that were made last and not answered, or new ones."""
        subject = f"{NODE_PREFIX}{target.node}"
        try:
            kept = msgspec.json.decode(self._pending.read_bytes(), type=MadeRequest)
            if (await self._process.read(kept.request)).common_name == subject:
                return kept
        except (OSError, msgspec.MsgspecError, GrangeError):
            pass  # there is none that can be used
        made = await self._process.make(MakeRequest(subject, NODES))
        write(self._pending, msgspec.json.encode(made))
        return made

    async def _certificate(self, client: Client, name: str) -> bytes:
        while True:
            found = await client.get(CERTIFICATESIGNINGREQUEST, name)
            if found.status.certificate:
                return base64.b64decode(found.status.certificate)
            if why := _refusal(found):
                self._pending.unlink(missing_ok=True)  # the next try is another request
                raise JoinFailed(f"cannot join: {why}")
            await self._clock.sleep(_POLL_S)


def _refusal(request: CertificateSigningRequest) -> str:
    found = [item for item in request.status.conditions if item.type in {DENIED, FAILED}]
    return found[0].message or found[0].reason if found else ""
