"""Requests for certificates against a real API server in memory, with a signer that only records."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.controller_world import World, world

from grange.api import bootstrap_tokens
from grange.api.bootstrap_tokens import BootstrapToken
from grange.api.certificate_requests import CertificateTemplate, InvalidRequest, RequestFacts
from grange.api.http import User
from grange.api.kinds import CERTIFICATESIGNINGREQUEST as REQUEST, CONFIGMAP, SECRET
from grange.api.kinds.certificatesigningrequest import NODE_CLIENT, NODE_SERVING
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.controllers.certificatesigning.controller import CertificateSigningController

JOINING = User("system:bootstrap:abcdef", ("system:bootstrappers", "system:authenticated"))
NODE = User("system:node:a", ("system:nodes", "system:authenticated"))
HEAD = b"-----BEGIN CERTIFICATE REQUEST-----\n"


class RecordingSigner:
    """Reads the subject from the text of a request, and signs with words."""

    def __init__(self) -> None:
        self.signed: list[CertificateTemplate] = []
        self.starts = 0

    def start(self) -> None:
        self.starts += 1

    async def read(self, request: bytes) -> RequestFacts:
        words = request.removeprefix(HEAD).decode().split()
        if not words:
            raise InvalidRequest("the request cannot be read")
        return RequestFacts(words[0], ("system:nodes",), tuple(words[1:]))

    async def sign(self, request: bytes, template: CertificateTemplate, now: datetime) -> bytes:
        self.signed.append(template)
        return b"signed"


class Signing:
    """The world of one test."""

    def __init__(self, there: World) -> None:
        self.world = there
        self.signer = RecordingSigner()
        there.start(
            CertificateSigningController(there.deps, self.signer, lambda: frozenset({"local"}))
        )

    async def put_token(self, **fields: Any) -> None:
        token = BootstrapToken("abcdef", "0123456789abcdef", **fields)
        body = bootstrap_tokens.document(token)
        await self.world.client.create(SECRET, body, bootstrap_tokens.NAMESPACE)

    async def ask(
        self, name: str, subject: str, user: User = JOINING, signer: str = NODE_CLIENT, **spec: Any
    ) -> str:
        """Make a request; the reasons that it ended with, or what was signed."""
        usage = "client auth" if signer == NODE_CLIENT else "server auth"
        request = base64.b64encode(HEAD + subject.encode()).decode()
        fields = {"request": request, "signerName": signer, "usages": [usage], **spec}
        client = Client(InProcess(self.world.application.handle, user), clock=self.world.clock)
        await client.create(REQUEST, {"metadata": {"name": name}, "spec": fields})
        await self.world.settle()
        return await self.outcome(name)

    async def outcome(self, name: str) -> str:
        status = (await self.world.client.get(REQUEST, name)).status
        reasons = [item.reason for item in status.conditions]
        return " ".join([*reasons, base64.b64decode(status.certificate).decode()]).strip()


@asynccontextmanager
async def signing(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[Signing]:
    async with world(clock, rng, log, hands=False) as there:
        yield Signing(there)


async def test_token_gets_the_certificate_of_a_free_name(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with signing(clock, rng, log) as there:
        await there.put_token()
        assert await there.ask("one", "system:node:a") == "AutoApproved signed"
        (template,) = there.signer.signed
        assert (template.common_name, template.organization) == ("system:node:a", "system:nodes")
        assert template.is_client
        assert template.life == timedelta(days=365)
        short = await there.ask("two", "system:node:b", expirationSeconds=3600)
        assert short == "AutoApproved signed"
        assert there.signer.signed[1].life == timedelta(hours=1)


@pytest.mark.parametrize(
    ("subject", "spec", "outcome"),
    [
        ("system:node:local", {}, "NodeNameTaken"),
        ("system:node:live", {}, "NodeNameTaken"),
        ("system:node:down", {}, "AutoApproved signed"),
        ("system:node:A_b", {}, "SignerValidationFailure"),
        ("system:node:", {}, "SignerValidationFailure"),
        ("admin", {}, "SignerValidationFailure"),
        ("", {}, "SignerValidationFailure"),
        ("system:node:a localhost", {}, "SignerValidationFailure"),
        ("system:node:a", {"usages": ["client auth", "cert sign"]}, "SignerValidationFailure"),
        ("system:node:a", {"usages": ["digital signature"]}, "SignerValidationFailure"),
        ("system:node:a", {"signerName": "a.b/c"}, ""),
        ("system:node:a", {"signerName": NODE_SERVING}, "SignerValidationFailure"),
    ],
)
async def test_request_of_a_token(
    clock: Clock, rng: Stream, log: Logger, subject: str, spec: dict[str, Any], outcome: str
) -> None:
    async with signing(clock, rng, log) as there:
        await there.put_token()
        await there.world.add_node("live")
        await there.world.add_node("down", ready=False)
        assert await there.ask("one", subject, **spec) == outcome


async def test_revoked_node_gets_no_certificate(clock: Clock, rng: Stream, log: Logger) -> None:
    async with signing(clock, rng, log) as there:
        await there.put_token()
        body = {"metadata": {"name": "revoked-nodes"}, "data": {"a": "stolen"}}
        await there.world.client.create(CONFIGMAP, body, "kube-system")
        assert await there.ask("one", "system:node:a") == "NodeRevoked"
        assert await there.ask("two", "system:node:b") == "AutoApproved signed"


async def test_token_for_one_node_and_one_use(clock: Clock, rng: Stream, log: Logger) -> None:
    async with signing(clock, rng, log) as there:
        await there.put_token(node="a", once=True)
        assert await there.ask("one", "system:node:b") == "TokenOfOtherNode"
        assert await there.ask("two", "system:node:a") == "AutoApproved signed"
        assert await there.ask("three", "system:node:a") == "TokenUsed"
        token = await there.world.client.get(SECRET, "bootstrap-token-abcdef", "kube-system")
        assert token.metadata.annotations == {bootstrap_tokens.USED_BY: "two"}


@pytest.mark.parametrize(
    ("fields", "starts"),
    [({"node": "a", "once": True}, 1), ({"once": True}, 0), ({"node": "a"}, 0)],
)
async def test_signer_starts_with_the_token_of_a_machine(
    clock: Clock, rng: Stream, log: Logger, fields: dict[str, Any], starts: int
) -> None:
    """What it needs is loaded before the machine asks; tokens that people make load nothing."""
    async with signing(clock, rng, log) as there:
        await there.world.settle()
        await there.put_token(**fields)
        await there.world.settle()
        assert there.signer.starts == starts


async def test_ended_token_joins_no_machine_and_is_removed(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with signing(clock, rng, log) as there:
        assert await there.ask("one", "system:node:a") == "TokenExpired"
        await there.put_token(expires=clock.now() + timedelta(minutes=5))
        assert await there.ask("two", "system:node:a") == "AutoApproved signed"
        await clock.sleep(302)
        assert not (await there.world.client.list(SECRET, "kube-system")).items
        assert await there.ask("three", "system:node:b") == "TokenExpired"


async def test_node_renews_its_certificates_and_no_others(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with signing(clock, rng, log) as there:
        await there.world.add_node("a")
        serving = "system:node:a a.nodes.cluster.local"
        assert await there.ask("one", "system:node:a", NODE) == "AutoApproved signed"
        assert await there.ask("two", serving, NODE, NODE_SERVING) == "AutoApproved signed"
        assert there.signer.signed[1].dns_names == ("a.nodes.cluster.local",)
        assert not there.signer.signed[1].is_client
        assert await there.ask("three", "system:node:b", NODE) == ""
        for name in ("localhost", "b.nodes.cluster.local", "a.nodes.cluster.local x"):
            wrong = f"system:node:a {name}"
            outcome = await there.ask(f"of-{name[0]}-{len(name)}", wrong, NODE, NODE_SERVING)
            assert outcome == "SignerValidationFailure"


async def test_administrator_approves_what_no_rule_does(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with signing(clock, rng, log) as there:
        bob = User("system:node:b", NODE.groups)
        assert await there.ask("one", "system:node:a", bob) == ""
        approved = {"type": "Approved", "status": "True", "reason": "Mine"}
        patch = {"status": {"conditions": [approved]}}
        await there.world.client.patch(REQUEST, "one", patch=patch, subresource="approval")
        await there.world.settle()
        assert await there.outcome("one") == "Mine signed"


async def test_old_requests_are_removed(clock: Clock, rng: Stream, log: Logger) -> None:
    async with signing(clock, rng, log) as there:
        await there.put_token()
        await there.ask("signed", "system:node:a")
        await there.ask("pending", "system:node:b", NODE)
        await clock.sleep(3700)
        names = [item.metadata.name for item in (await there.world.client.list(REQUEST)).items]
        assert names == ["pending"]
        await clock.sleep(23 * 3600)
        assert not (await there.world.client.list(REQUEST)).items
