"""The server without a socket: one request in, one response out.

``handle`` never raises for anything a request does: errors become ``Status`` bodies here and only
here. The in-process transport calls it directly; the listener puts HTTPS in front of it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Network

from msgspec import structs

from grange.api import codec
from grange.api.delete_parameters import REMOVE_FINALIZER
from grange.api.http import ANONYMOUS, Request, Response, User
from grange.api.kinds import SERVICE, priorityclass
from grange.api.scheme import Scheme
from grange.api.status import (
    AlreadyExists,
    ApiError,
    InternalError,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
)
from grange.apiserver import discovery, request_info, storage, subresources
from grange.apiserver.account_tokens import AccountTokens, key_from
from grange.apiserver.admission.certificaterequester import CertificateRequester
from grange.apiserver.admission.namespacelifecycle import BUILT_IN, NamespaceLifecycle
from grange.apiserver.admission.noderestriction import NodeRestriction
from grange.apiserver.admission.priority import Priority
from grange.apiserver.admission.privilege_escalation import PrivilegeEscalation
from grange.apiserver.admission.protection import Protection
from grange.apiserver.admission.serviceaccount import ServiceAccounts
from grange.apiserver.authn import Authenticator
from grange.apiserver.authorization import authorizer
from grange.apiserver.authorization.authorizer import Authorizer, AuthorizerChain, Superusers
from grange.apiserver.authorization.node_authorizer import NodeAuthorizer
from grange.apiserver.authorization.rbac_authorizer import RBACAuthorizer
from grange.apiserver.authorization.stored_roles import StoredRoles
from grange.apiserver.bootstrap_policy import write_default_roles
from grange.apiserver.cluster_objects import ClusterObjects
from grange.apiserver.error_response import failure
from grange.apiserver.event_ttl import Expiry
from grange.apiserver.explain import Explainer
from grange.apiserver.handlers import deletes, reads, writes
from grange.apiserver.health_endpoints import HealthEndpoints
from grange.apiserver.impersonation import effective_user
from grange.apiserver.metrics import ServerMetrics
from grange.apiserver.metrics_api import MetricsAPI, MetricsSource
from grange.apiserver.negotiation import object_form
from grange.apiserver.openapi import OpenAPI
from grange.apiserver.pod_logs import LogSource
from grange.apiserver.pod_streams import PodStreams
from grange.apiserver.registry import Place, Registry
from grange.apiserver.rendering import render
from grange.apiserver.request_context import Call, add_warnings
from grange.apiserver.request_info import Target
from grange.apiserver.reviews import Reviews
from grange.apiserver.service_allocation import DEFAULT_NETWORK
from grange.apiserver.token_reviews import TokenReviewer
from grange.apiserver.unreadable import UnreadableObjects
from grange.apiserver.watch import Watches
from grange.apiserver.write_options import WriteOptions
from grange.base import supervision
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, exposition, registry as new_registry
from grange.base.offload import Offload
from grange.base.ratelimited import RateLimitedLogger
from grange.base.rng import Stream
from grange.store.errors import StoreError
from grange.store.interface import Store

_VERBS: Mapping[str, Callable[[Call], Awaitable[Response]]] = {
    "get": reads.get,
    "list": reads.list_objects,
    "watch": reads.watch,
    "create": writes.create,
    "update": writes.update,
    "patch": writes.patch,
    "delete": deletes.delete,
    "deletecollection": deletes.delete_collection,
}
_WRITES = frozenset(_VERBS) - {"get", "list", "watch"}
_METHODS = {  # verbs of requests that are about no resource
    method: method.lower() for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
}
_ROOTS = (
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
)


class Application:
    """The API server.

    Args:
        store: where objects are kept; closed by its owner, not here.
        scheme: the kinds that are served.
        clock, rng, log: of the process.
        authn: turns the credentials of requests that come without a user into one; None trusts
            the transport alone.
        authorizers: asked after the one that allows superusers everything and before RBAC.
        logs: the output of pods; None when no agent is connected.
        streams: connections into pods; None when no agent is connected.
        usage: what pods use; None when no agent is connected.
        explainer: explains why pods wait; None when no scheduler runs here.
        metrics: where requests are counted; a private registry by default.
        offload: where large documents are prepared; closed by its owner, not here.
        service_network: the range of the addresses of Services.
        accounts: makes the tokens of service accounts; of a private key by default.
        ca_pem: the certificate of the authority, for pods; empty where nothing is served over TLS.

    Attributes:
        services: the supervised services that report to ``metrics``; ``/readyz`` shows them.
    """

    def __init__(  # noqa: PLR0913  everything is injected, and this is the seam
        self,
        store: Store,
        scheme: Scheme,
        *,
        clock: Clock,
        rng: Stream,
        log: Logger,
        authn: Authenticator | None = None,
        authorizers: Sequence[Authorizer] = (),
        logs: LogSource | None = None,
        streams: PodStreams | None = None,
        usage: MetricsSource | None = None,
        explainer: Explainer | None = None,
        metrics: CollectorRegistry | None = None,
        offload: Offload | None = None,
        service_network: IPv4Network = DEFAULT_NETWORK,
        accounts: AccountTokens | None = None,
        ca_pem: str = "",
    ) -> None:
        self.store = store
        self.scheme = scheme
        self.health = HealthEndpoints(store)
        self._clock = clock
        self._log = log
        self._errors = RateLimitedLogger(log, clock)
        self._authn = authn
        self._logs = logs
        self._streams = streams
        self._explainer = explainer
        registry = metrics or new_registry()
        self.services = supervision.services(registry)
        self.health.add_group(self._service_faults)
        stream = rng.fork("apiserver")
        self._skipped = supervision.SkippedObjects("api server", log=log, registry=registry)
        self._unreadable = UnreadableObjects(self._skipped)
        self._roles = StoredRoles(store, self._skipped)
        self._rbac = RBACAuthorizer(self._roles)
        may_grant = AuthorizerChain((Superusers(), self._rbac))
        self._priority = Priority(store)
        self.registry = Registry(
            store,
            scheme,
            clock=clock,
            rng=stream,
            offload=offload,
            admission=(
                NamespaceLifecycle(store),
                self._priority,
                ServiceAccounts(store, has_ca=bool(ca_pem)),
                Protection(store),
                CertificateRequester(),
                NodeRestriction(),
                PrivilegeEscalation(store, may_grant, self._rbac),
            ),
            service_network=service_network,
            unreadable=self._unreadable,
        )
        self._metrics = ServerMetrics(registry, self.registry.work)
        self.watches = Watches(
            store,
            clock=clock,
            rng=stream,
            work=self.registry.work,
            unreadable=self._unreadable,
        )
        self.accounts = accounts or AccountTokens(
            key_from(stream.fork("accounts").uid()), store, clock
        )
        nodes = NodeAuthorizer(store, self.registry.node_capacity)
        self._authorizer = AuthorizerChain((Superusers(), nodes, *authorizers, self._rbac))
        self._reviews = Reviews(self._authorizer, self._rbac, TokenReviewer(self.accounts, authn))
        self._usage = MetricsAPI(usage, self.registry, self._authorizer)
        self._objects = ClusterObjects(self.registry, ca_pem=ca_pem, log=log)
        self._openapi = OpenAPI(scheme)
        self._expiry = Expiry(self.registry, clock=clock, log=log, metrics=registry)

    async def bootstrap(self) -> None:
        """Create the namespaces and priority classes that the system needs; idempotent.

        Raises:
            ApiError: the store refused.
        """
        await self._unreadable.find(self.store, self.scheme)
        await self._priority.load(self._skipped.skip)
        await self.registry.node_capacity.load(self._skipped.skip)
        await self._load_services()
        documents = [("", "namespaces", {"metadata": {"name": name}}) for name in BUILT_IN]
        documents += [
            ("scheduling.k8s.io", "priorityclasses", priorityclass.system_class(name))
            for name in priorityclass.SYSTEM
        ]
        for group, plural, document in documents:
            info = self.scheme.resource(group, "v1", plural)
            if info is not None:
                try:
                    await self.registry.create(info, "", document, WriteOptions())
                except AlreadyExists:
                    continue
        await self._objects.ensure_all()
        await write_default_roles(self.registry, self.scheme, self._log)
        await self._roles.load()
        self.health.bootstrapped = True

    async def _load_services(self) -> None:
        """Note what Services have; those of a server that allocated nothing get it now."""
        for namespace, name in await self.registry.services.load(self._skipped.skip):
            place = Place(SERVICE, namespace, name)
            try:
                await self.registry.update(place, lambda old: old, WriteOptions())
            except ApiError as error:
                self._log.warning("service without address", service=place.key, error=error)

    async def publish(self, host: str, port: int) -> None:
        """Write the Service ``kubernetes``: where the API is served."""
        await self._objects.publish(host, port)

    async def run(self) -> None:
        """Keep house (take old events away) until cancelled."""
        await self._expiry.run()

    def end_streams(self) -> None:
        """End all watches in order, before the listener closes; later ones end after their state."""
        self.watches.end()

    async def handle(self, request: Request) -> Response:
        """Serve one request.

        Returns:
            The answer; failures are answers with a ``Status`` body. Chunks are to be closed.
        Cancellation: a write may still happen.
        """
        started = self._clock.monotonic()
        verb, resource = _METHODS.get(request.method, "other"), ""
        try:
            sender = self._user(request)
            if not self._roles.is_loaded:
                await self._roles.load()
            user = effective_user(sender, request.headers, self._authorizer)
            if user is not sender:
                request = replace(request, user=user)
            unstored = self._reviews.serve(request, user) or self._usage.serve(request, user)
            target = None if unstored else self._authorized(request, user)
            if unstored is not None:
                response = unstored
            elif target is None:
                response = self._serve_path(request)
            else:
                verb = target.verb
                handler = self._handler(target, request)
                resource = target.resource
                call = Call(
                    request,
                    target,
                    self.registry,
                    self.watches,
                    self._logs,
                    self._streams,
                    self._metrics,
                    self._explainer,
                    self.accounts,
                )
                response = await handler(call)
                add_warnings(response, call.warnings)
                if response.status < 300 and "dryRun" not in request.query:
                    await self._objects.after(target, response.body)
        except ApiError as error:
            response = failure(error)
        except StoreError as error:
            response = failure(storage.translate(error))
        except Exception as error:  # noqa: BLE001  one of the three supervision points
            self._errors.error(
                "request failed", method=request.method, path=request.path, error=error
            )
            response = failure(InternalError("the server failed on this request; see its log"))
        render(request, response)
        elapsed = self._clock.monotonic() - started
        self._metrics.observe(verb, resource, response.status, elapsed)
        self._log.debug(
            "request",
            verb=verb,
            path=request.path,
            code=response.status,
            user=request.user.name,
            elapsed_s=elapsed,
        )
        return response

    def admit(self, request: Request) -> None:
        """Decide on a request before its body is there.

        Raises:
            ApiError: it will be refused whatever its body is.
        """
        user = effective_user(self._user(request), request.headers, self._authorizer)
        if self._reviews.admits(request, user) or self._usage.admits(request, user):
            return
        target = self._authorized(request, user)
        if target is not None:
            self._handler(target, request)

    def _authorized(self, request: Request, user: User) -> Target | None:
        """What an authorized request is about; None for paths outside resources."""
        target = request_info.parse(request, self.scheme)
        if target is None:
            attributes = authorizer.path_attributes(user, request.method, request.path)
        else:
            attributes = authorizer.resource_attributes(user, target, request.query)
        authorizer.check(self._authorizer, attributes)
        if request.method == "DELETE" and REMOVE_FINALIZER in request.query:
            authorizer.check(self._authorizer, structs.replace(attributes, verb="patch"))
        return target

    def _service_faults(self) -> Mapping[str, str]:
        faults = self.services.faults(self._clock.monotonic())
        return {f"service/{name.replace(' ', '-')}": why for name, why in faults.items()}

    def _user(self, request: Request) -> User:
        if request.user == ANONYMOUS and self._authn is not None:
            user = self._authn.authenticate(request.headers)
            if user is not None:
                request.user = user
            elif request.headers.get("authorization"):
                raise Unauthorized("the credential in the Authorization header is not known")
        return request.user

    def _handler(self, target: Target, request: Request) -> Callable[[Call], Awaitable[Response]]:
        """What serves a request, whose answer the caller can take.

        Raises:
            NotFound, MethodNotAllowed: nothing does.
            NotAcceptable: the caller takes no form in which a write is answered. Decided before the
                write: a client would take the answer to one that was done for a refusal.
        """
        if target.verb in _WRITES:
            object_form(request.headers.get("accept", ""))
        if not target.subresource:
            return _VERBS[target.verb]
        part = subresources.find(target.info, target.subresource)
        if part is None:
            raise NotFound(
                f"the server could not find the requested resource: {target.info.plural} have no "
                f"subresource {target.subresource}"
            )
        handler = part.verbs.get(target.verb)
        if handler is None:
            raise MethodNotAllowed(
                f"{target.resource} can be asked to {', '.join(part.verbs)}, not to {target.verb}"
            )
        return handler

    def _serve_path(self, request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            raise MethodNotAllowed(f"{request.method} is not served on {request.path}")
        path = request.path.rstrip("/")
        if path == "":
            return Response(200, codec.encode({"paths": list(_ROOTS)}))
        if path == "/metrics":
            self._metrics.watchers(len(self.watches))
            text = exposition(self._metrics.registry)
            return Response(200, text, "text/plain; version=0.0.4; charset=utf-8")
        response = (
            self.health.serve(path, request.query)
            or self._openapi.serve(path, request.headers)
            or discovery.serve(path, request.headers, self.scheme)
        )
        if response is None:
            raise request_info.no_such_path(request.path)
        return response
