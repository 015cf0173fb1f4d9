"""The shell of the signing controller."""

import base64
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

import msgspec

from grange.api import bootstrap_tokens, revoked_nodes
from grange.api.bootstrap_tokens import BootstrapToken
from grange.api.certificate_requests import CertificateSigner, InvalidRequest, RequestFacts
from grange.api.kinds import CERTIFICATESIGNINGREQUEST, CONFIGMAP, NODE, SECRET
from grange.api.kinds.certificatesigningrequest import (
    APPROVED,
    DENIED,
    FAILED,
    CertificateSigningRequest,
    has_condition,
)
from grange.api.kinds.node import Node
from grange.api.kinds.secret import Secret
from grange.api.meta import Document, ObjectKey, preconditions
from grange.api.status import BadRequest, NotFound
from grange.base.errors import GrangeError
from grange.controllers.certificatesigning import logic
from grange.controllers.certificatesigning.logic import (
    Approve,
    Deny,
    JoinInputs,
    Leave,
    Unsignable,
)
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.deps import Deps

NAME = "certificatesigning"
WORKERS = 2
_NOT_SIGNABLE = "SignerValidationFailure"
_TOKENS = f"type={bootstrap_tokens.SECRET_TYPE}"


class CertificateSigningController:
    """Decides on the requests of nodes and signs; ``run`` it once per API server.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        signer: reads requests and signs.
        reserved: gives the names that no machine may join with.
    """

    def __init__(
        self, deps: Deps, signer: CertificateSigner, reserved: Callable[[], Collection[str]]
    ) -> None:
        self._client = deps.client
        self._clock = deps.clock
        self._log = deps.log.bind(controller=NAME)
        self._signer = signer
        self._reserved = reserved
        self._requests = deps.informers.informer(CERTIFICATESIGNINGREQUEST)
        self._tokens = deps.informers.informer(SECRET, fields=_TOKENS)
        self.loop = Controller(
            NAME,
            self.reconcile,
            workers=WORKERS,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._requests.add_handler(self._seen, lambda _, new: self._seen(new))
        self._tokens.add_handler(self._token_added, lambda _, new: self._token_seen(new))

    async def run(self) -> None:
        """Work until cancelled."""
        await self._requests.synced.wait()
        await self._tokens.synced.wait()
        await self.loop.run()

    def _seen(self, request: CertificateSigningRequest) -> None:
        self.loop.enqueue(request.key)

    def _token_added(self, secret: Secret) -> None:
        self._token_seen(secret)
        token = bootstrap_tokens.read(secret)
        # It is made when a machine is launched; a local one asks for its certificate a second later.
        if token is not None and token.once and token.node and self._tokens.synced.is_set():
            with suppress(GrangeError):  # the request has the error
                self._signer.start()

    def _token_seen(self, secret: Secret) -> None:
        self.loop.enqueue(secret.key)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Bring one request, or one token, a step further.

        Raises:
            ApiError: a request failed that had to succeed; to be tried again.
        """
        if key.namespace:
            return await self._remove_ended_token(key)
        request = self._requests.store.get(key)
        if request is None:
            return Done()
        if logic.is_open(request):
            await self._serve(request)
        removal = logic.removal_time(request)
        if removal is None:
            return Done()
        left_s = (removal - self._clock.now()).total_seconds()
        if left_s > 0:
            return Requeue(left_s)
        with suppress(NotFound):
            await self._client.delete(
                CERTIFICATESIGNINGREQUEST, request.metadata.name, uid=request.metadata.uid
            )
        return Done()

    # --- requests -----------------------------------------------------------------------------

    async def _serve(self, request: CertificateSigningRequest) -> None:
        """Decide on a request, and sign it if it is approved."""
        try:
            asked = base64.b64decode("".join(request.spec.request.split()))
            facts = await self._signer.read(asked)
        except (ValueError, InvalidRequest) as error:
            await self._conclude(request, FAILED, _NOT_SIGNABLE, str(error))
            return
        if has_condition(request, APPROVED):
            if why := logic.fault(request, facts):
                await self._conclude(request, FAILED, _NOT_SIGNABLE, why)
                return
        elif not await self._approve(request, facts):
            return
        template = logic.template(request, facts)
        certificate = await self._signer.sign(asked, template, self._clock.now())
        status: Document = {"certificate": base64.b64encode(certificate).decode()}
        await self._patch(request, status, "status")
        self._log.info("certificate signed", request=request.metadata.name, name=facts.common_name)

    async def _approve(self, request: CertificateSigningRequest, facts: RequestFacts) -> bool:
        """Decide by rule; whether the request is approved."""
        secret = await self._token_of(request)
        token = bootstrap_tokens.read(secret) if secret is not None else None
        name = logic.node_name(facts)
        inputs = JoinInputs(
            node=await self._node(name),
            token=token,
            reserved=self._reserved(),
            revoked=revoked_nodes.refusal(await self._revoked_nodes(), name),
            now=self._clock.now(),
        )
        match logic.decide(request, facts, inputs):
            case Approve(message):
                if secret is not None and token is not None and token.once:
                    await self._use(secret, token, request)
                await self._conclude(request, APPROVED, "AutoApproved", message)
                return True
            case Deny(reason, message):
                await self._conclude(request, DENIED, reason, message)
            case Unsignable(message):
                await self._conclude(request, FAILED, _NOT_SIGNABLE, message)
            case Leave():
                pass
        return False

    async def _token_of(self, request: CertificateSigningRequest) -> Secret | None:
        """The Secret of the token that made a request, as it is now."""
        token_id = logic.token_id(request)
        if not token_id:
            return None
        name = bootstrap_tokens.secret_name(token_id)
        try:
            return await self._client.get(SECRET, name, bootstrap_tokens.NAMESPACE)
        except NotFound:
            return None

    async def _revoked_nodes(self) -> Mapping[str, str]:
        where = revoked_nodes.NAME, revoked_nodes.NAMESPACE
        try:
            return (await self._client.get(CONFIGMAP, *where)).data
        except NotFound:
            return {}

    async def _node(self, name: str) -> Node | None:
        try:
            return await self._client.get(NODE, name) if name else None
        except (NotFound, BadRequest):
            return None

    async def _use(
        self, secret: Secret, token: BootstrapToken, request: CertificateSigningRequest
    ) -> None:
        """Record which request used a token for one use, before another one can."""
        if token.used_by:
            return
        annotations = {bootstrap_tokens.USED_BY: request.metadata.name}
        meta = {**preconditions(secret.metadata), "annotations": annotations}
        where = secret.metadata.name, bootstrap_tokens.NAMESPACE
        await self._client.patch(SECRET, *where, patch={"metadata": meta})

    async def _conclude(
        self, request: CertificateSigningRequest, kind: str, reason: str, message: str
    ) -> None:
        """Add a condition to a request."""
        if kind != APPROVED:
            self._log.warning(
                "request refused", request=request.metadata.name, reason=reason, message=message
            )
        before = [msgspec.to_builtins(item) for item in request.status.conditions]
        added = logic.condition(kind, reason, message, self._clock.now())
        part = "status" if kind == FAILED else "approval"
        await self._patch(request, {"conditions": [*before, added]}, part)

    async def _patch(
        self, request: CertificateSigningRequest, status: Document, subresource: str
    ) -> None:
        await self._client.patch(
            CERTIFICATESIGNINGREQUEST,
            request.metadata.name,
            patch={"metadata": {"uid": request.metadata.uid}, "status": status},
            subresource=subresource,
        )

    # --- tokens -------------------------------------------------------------------------------

    async def _remove_ended_token(self, key: ObjectKey) -> Result:
        secret = self._tokens.store.get(key)
        token = bootstrap_tokens.read(secret) if secret is not None else None
        if secret is None or token is None or token.expires is None:
            return Done()
        left_s = (token.expires - self._clock.now()).total_seconds()
        if left_s > 0:
            return Requeue(left_s)
        with suppress(NotFound):
            await self._client.delete(SECRET, key.name, key.namespace, uid=secret.metadata.uid)
        return Done()
