"""How a machine joins: the authority that it trusts, and the certificate of its node.

::

    <directory>/pki/
        ca.crt          the authority of the cluster, checked against the hash when it was fetched
        request.json    the key and the request that are not answered yet
        node.pem        certificate and key with which the node calls the API server
        serving.json    as request.json, for the other certificate
        serving.pem     certificate and key with which its agent is called
"""

import base64
import hashlib
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from grange.api import codec, x509_facts
from grange.api.http import Request
from grange.api.kinds import CERTIFICATESIGNINGREQUEST
from grange.api.kinds.certificatesigningrequest import (
    CLIENT_USAGE,
    DENIED,
    FAILED,
    NODE_CLIENT,
    NODE_SERVING,
    SERVING_USAGE,
    SIGNATURE_USAGE,
    CertificateSigningRequest,
)
from grange.api.meta import Document
from grange.api.node_identity import NODE_PREFIX, NODES, serving_name
from grange.api.status import AlreadyExists, ApiError, Forbidden, Unauthorized
from grange.app.certificate_commands import MadeRequest, MakeRequest
from grange.app.certificate_process import CertificateProcess
from grange.app.clock_skew import clock_fault
from grange.app.datadir import make_directory, node_certificate, write
from grange.app.version_skew import check_version
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.client.client import Client
from grange.client.transports.http_transport import HTTP, tls_context

_CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
_ANSWER_S = 60.0
_POLLS = Exponential(initial_s=0.02, cap_s=0.1)


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


class _Wanted(NamedTuple):
    """One of the certificates of a node.

    Attributes:
        signer: who signs it.
        usage: what it is for.
        file: where it is kept.
        pending: where its request is kept until it is answered.
    """

    signer: str
    usage: str
    file: Path
    pending: Path


class NodeCredentials:
    """The credentials in the data directory of an agent.

    Args:
        data_dir: of the agent.
        process: makes keys.
        clock: time.

    Attributes:
        file: certificate and key with which the node calls the API server.
        serving_file: those with which its agent is called.
    """

    def __init__(self, data_dir: Path, process: CertificateProcess, clock: Clock) -> None:
        self.file = node_certificate(data_dir)
        self._directory = self.file.parent
        self._ca = self._directory / "ca.crt"
        self.serving_file = self._directory / "serving.pem"
        self._client = _Wanted(
            NODE_CLIENT, CLIENT_USAGE, self.file, self._directory / "request.json"
        )
        self._serving = _Wanted(
            NODE_SERVING, SERVING_USAGE, self.serving_file, self._directory / "serving.json"
        )
        self._process = process
        self._clock = clock

    def has_certificate(self, node: str) -> bool:
        """Whether there is a certificate of a node that has not ended.

        Raises:
            JoinFailed: it is of another node, or begins later.
        """
        facts = self._facts()
        if facts is None:
            return False
        found = facts.common_name.removeprefix(NODE_PREFIX)
        if found != node:
            raise JoinFailed(
                f"--node-name {node}: {self._directory.parent} is the data directory of node "
                f"{found}; give that name, or another --data-dir for another node"
            )
        if self._clock.now() < facts.not_before:
            raise JoinFailed(
                f"the certificate of node {node} begins at {facts.not_before}, and here it is "
                f"{self._clock.now():%Y-%m-%d %H:%M:%S+00:00}: set the clock of this machine"
            )
        return self._clock.now() < facts.not_after

    def _facts(self) -> x509_facts.CertificateFacts | None:
        try:
            return x509_facts.read(self.file.read_bytes())
        except (OSError, x509_facts.CertificateUnreadable):
            return None

    def context(self) -> ssl.SSLContext:
        """TLS for the node: trusts the authority and shows the certificate."""
        context = tls_context(self._ca.read_bytes())
        context.load_cert_chain(self.file)
        return context

    def serving_context(self) -> ssl.SSLContext:
        """TLS for the agent's server: demands certificates of the authority.

        Without a serving certificate, which comes after the first start, no connection succeeds.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self._ca.read_text(encoding="ascii"))
        with suppress(OSError, ssl.SSLError):
            context.load_cert_chain(self.serving_file)
        return context

    async def renew(self, client: Client, target: JoinTarget) -> None:
        """Get another certificate, as the node that the present one names.

        Raises:
            JoinFailed: the request is refused or not answered.
            ApiError: the server cannot be reached or refuses the node.
        """
        await self._request(client, target, self._client)

    async def renew_serving(self, client: Client, target: JoinTarget) -> None:
        """Get a serving certificate for the node that the present client certificate names.

        Raises:
            JoinFailed: the request is refused or not answered.
            ApiError: the server cannot be reached or refuses the node.
        """
        await self._request(client, target, self._serving)

    async def join(self, target: JoinTarget) -> None:
        """Get a certificate for the node.

        Raises:
            JoinFailed: the server refuses, cannot be reached or is another one.
        """
        ended = self._facts()
        if not target.token and ended is not None:
            raise JoinFailed(
                f"the certificate of node {target.node} ended at {ended.not_after}: the agent did not "
                "run to renew it; it joins again with a token: create one with grange token create "
                f"--node {target.node} and give it with --token"
            )
        if not target.token:
            raise JoinFailed(
                f"no certificate of the node in {self._directory}: a machine joins with a token; "
                "create one with grange token create and give it with --token"
            )
        make_directory(self._directory)
        self._process.start()
        write(self._ca, await self._authority(target))
        transport = HTTP(
            target.server, target.token, ssl_context=tls_context(self._ca.read_bytes())
        )
        try:
            if why := await check_version(transport, self._clock):
                raise JoinFailed(why)
            await self._request(Client(transport, clock=self._clock), target, self._client)
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
            # Before certificates are checked, which a wrong clock takes for ended or not begun.
            date = answer.headers.get("date", "")
            if why := clock_fault(server, date, self._clock.now()):
                raise JoinFailed(why)
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

    async def _request(self, client: Client, target: JoinTarget, wanted: _Wanted) -> None:
        made = await self._pending_request(target, wanted)
        name = f"node-csr-{hashlib.sha256(made.request).hexdigest()[:32]}"
        spec: Document = {
            "request": base64.b64encode(made.request).decode(),
            "signerName": wanted.signer,
            "usages": [SIGNATURE_USAGE, wanted.usage],
        }
        with suppress(AlreadyExists):  # asked before the agent was started again
            await client.create(
                CERTIFICATESIGNINGREQUEST, {"metadata": {"name": name}, "spec": spec}
            )
        try:
            async with self._clock.timeout(_ANSWER_S):
                pem = await self._certificate(client, name, wanted)
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
        write(wanted.file, pem + made.key)
        wanted.pending.unlink(missing_ok=True)

    async def _pending_request(self, target: JoinTarget, wanted: _Wanted) -> MadeRequest:
        """The key and the request that were made last and not answered, or new ones."""
        subject = f"{NODE_PREFIX}{target.node}"
        try:
            kept = msgspec.json.decode(wanted.pending.read_bytes(), type=MadeRequest)
            if (await self._process.read(kept.request)).common_name == subject:
                return kept
        except (OSError, msgspec.MsgspecError, GrangeError):
            pass  # there is none that can be used
        names = (serving_name(target.node),) if wanted is self._serving else ()
        made = await self._process.make(MakeRequest(subject, NODES, names))
        write(wanted.pending, msgspec.json.encode(made))
        return made

    async def _certificate(self, client: Client, name: str, wanted: _Wanted) -> bytes:
        polls = 0
        while True:
            found = await client.get(CERTIFICATESIGNINGREQUEST, name)
            if found.status.certificate:
                return base64.b64decode(found.status.certificate)
            if why := _refusal(found):
                wanted.pending.unlink(missing_ok=True)  # the next try is another request
                raise JoinFailed(f"cannot join: {why}")
            polls += 1
            await self._clock.sleep(_POLLS.delay(polls))


def _refusal(request: CertificateSigningRequest) -> str:
    found = [item for item in request.status.conditions if item.type in {DENIED, FAILED}]
    return found[0].message or found[0].reason if found else ""
