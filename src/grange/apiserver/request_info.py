"""What a URL asks for: method and path in, verb, kind, namespace, name and subresource out.

The grammar is that of Kubernetes::

    /api/v1/…  /apis/<group>/<version>/…
        <resource>                                      collection, all namespaces or cluster scope
        <resource>/<name>[/<subresource>]               object of a cluster-scoped kind
        bindings                                        the binding of many pods (core group)
        namespaces/<ns>/<resource>[/<name>[/<sub>]]     inside a namespace
        namespaces/<ns>[/status|/finalize]              the namespace itself
"""

import msgspec

from grange.api import alternatives
from grange.api.http import Request
from grange.api.scheme import AnyKind, Scheme
from grange.api.status import MethodNotAllowed, NotFound
from grange.api.stream_requests import OPERATIONS

_OBJECT_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {
    "GET": "list",
    "HEAD": "list",
    "POST": "create",
    "DELETE": "deletecollection",
}
CUSTOM_RESOURCE_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
"""Not served, but listed: kubectl looks here for a kind that it does not know, and there are none."""

_INSTEAD_OF_PROXY = {
    "nodes": "use kubectl top (metrics.k8s.io) for usage, and kubectl logs and exec for pods",
    "pods": "use kubectl port-forward",
    "services": "use kubectl port-forward, or the address of the Service",
}
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})


class Target(msgspec.Struct, frozen=True, gc=False):
    """What a resource request is about.

    Attributes:
        verb: get, list, watch, create, update, patch, delete or deletecollection.
        info: the kind.
        namespace: empty for cluster-scoped kinds and for all namespaces.
        name: empty for collections.
        subresource: empty for the object itself; without a name that of many objects.
    """

    verb: str
    info: AnyKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def resource(self) -> str:
        """``pods`` or ``pods/status``: bounded, for metrics and messages."""
        if not self.subresource:
            return self.info.plural
        return f"{self.info.plural}/{self.subresource}" if self.name else f"{self.subresource}s"


def is_true(value: str | None) -> bool:
    """Whether a query parameter is set to a true value."""
    return value in _TRUE


def parse(request: Request, scheme: Scheme) -> Target | None:
    """The target of a resource request; None for every other path (discovery, health, …).

    Raises:
        NotFound: the path is under a resource root but no such resource is served.
        MethodNotAllowed: the path cannot be asked with this method.
    """
    parts = request.path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if rest == ["bindings"] and not group:
        return _bindings(request, version, scheme)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and not _of_namespace_itself(rest, group):
        namespace, rest = rest[1], rest[2:]
    info = scheme.resource(group, version, rest[0])
    if info is None:
        if request.path == CUSTOM_RESOURCE_DEFINITIONS and request.method == "GET":
            return None
        raise unknown_resource(group, version, rest[0], scheme)
    if len(rest) > 2 and rest[2] == "proxy":
        raise _no_proxy(info)
    if len(rest) > 3 or (namespace and not info.namespaced):
        raise no_such_path(request.path)
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if info.namespaced and name and not namespace:
        raise no_such_path(request.path)
    verb = _verb(request, name=name, subresource=subresource)
    if verb == "create" and not name and info.namespaced and not namespace:
        raise MethodNotAllowed(
            f"{info.plural} live in namespaces: POST to {info.path('<namespace>')}"
        )
    return Target(verb, info, namespace, name, subresource)


def _bindings(request: Request, version: str, scheme: Scheme) -> Target:
    info = scheme.resource("", version, "pods")
    if info is None:
        raise unknown_resource("", version, "bindings", scheme)
    return Target(_verb(request, name="", subresource="binding"), info, subresource="binding")


def _of_namespace_itself(rest: list[str], group: str) -> bool:
    return not group and len(rest) == 3 and rest[2] in {"status", "finalize"}


def _verb(request: Request, *, name: str, subresource: str) -> str:
    method = request.method
    if not name:
        verb = _COLLECTION_VERBS.get(method)
    elif subresource and (method == "POST" or (method == "GET" and subresource in OPERATIONS)):
        verb = "create"
    else:
        verb = _OBJECT_VERBS.get(method)
    if method == "GET" and not subresource and is_true(request.query.get("watch")):
        return "watch"
    if verb is None:
        raise MethodNotAllowed(f"{method} is not served on {request.path}")
    return verb


def unknown_resource(group: str, version: str, plural: str, scheme: Scheme) -> NotFound:
    """The error for a resource that is not served; it names what is near."""
    where = f"{group}/{version}" if group else version
    served = sorted(
        info.plural for info in scheme if (info.group, info.version) == (group, version)
    )
    if advice := alternatives.advise_on_resource(scheme, group, plural):
        named = f"{plural} are not in {where}" if served else f"the server serves no API {where}"
        return NotFound(
            f"the server could not find the requested resource: {named}; {advice}",
            kind=plural,
            group=group,
        )
    if not served:
        return NotFound(f"the server serves no API {where}; see /apis for what it serves")
    return NotFound(
        f'the server could not find the requested resource: "{plural}" is not in {where}, '
        f"which has {', '.join(served)}"
    )


def _no_proxy(info: AnyKind) -> NotFound:
    instead = _INSTEAD_OF_PROXY.get(info.plural, "no kind has it")
    return NotFound(
        f"the server could not find the requested resource: {info.plural}/proxy is not served; {instead}"
    )


def no_such_path(path: str) -> NotFound:
    """The error for a path that nothing serves."""
    return NotFound(f"the server could not find the requested resource: nothing is at {path}")
