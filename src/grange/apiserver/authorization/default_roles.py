"""The roles and bindings that every server has, named as in Kubernetes.

They are written when the server starts, where they are missing, and completed where they lack rules
or subjects, unless their annotation ``rbac.authorization.kubernetes.io/autoupdate`` is ``false``.
"""

from collections.abc import Iterable, Sequence

from grange.api import crds, user_roles
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.validation import rbac

AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
AGGREGATE = f"{rbac.GROUP}/aggregate-to"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
_BOOTSTRAPPING = "kubernetes.io/bootstrapping"
_HEALTH_PATHS = ("/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*")
_VERSION_PATHS = ("/version", "/version/")
_DISCOVERY_PATHS = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_CREATE = ("create",)
_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"


def _paths(*paths: str) -> Document:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}


def _rule(group: str, verbs: Sequence[str], *resources: str) -> Document:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


_VIEW = (
    _rule(
        "",
        _READ,
        "configmaps",
        "endpoints",
        "events",
        "namespaces",
        "namespaces/status",
        "pods",
        "pods/log",
        "pods/status",
        "serviceaccounts",
        "services",
        "services/status",
    ),
    _rule("batch", _READ, "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
    _rule("discovery.k8s.io", _READ, "endpointslices"),
    _rule("events.k8s.io", _READ, "events"),
    _rule("policy", _READ, "poddisruptionbudgets", "poddisruptionbudgets/status"),
)
_EDIT = (
    _rule(
        "",
        _READ,
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "secrets",
        "services/proxy",
    ),
    _rule("", ("impersonate",), "serviceaccounts"),
    _rule(
        "",
        _WRITE,
        "configmaps",
        "endpoints",
        "events",
        "pods",
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "pods/resize",
        "secrets",
        "serviceaccounts",
        "services",
        "services/proxy",
    ),
    _rule("", _CREATE, "pods/eviction", "serviceaccounts/token"),
    _rule("batch", _WRITE, "cronjobs", "jobs"),
    _rule("coordination.k8s.io", (*_READ, *_WRITE), "leases"),
    _rule("discovery.k8s.io", _WRITE, "endpointslices"),
    _rule("policy", _WRITE, "poddisruptionbudgets"),
)
_ADMIN = (
    _rule(_AUTHORIZATION, _CREATE, "localsubjectaccessreviews"),
    _rule(rbac.GROUP, (*_READ, *_WRITE), "rolebindings", "roles"),
)


def cluster_roles(kinds: Iterable[AnyKind]) -> list[Document]:
    """The ClusterRoles.

    Args:
        kinds: all that are served; users may see and edit our own in their namespaces.
    """
    own = crds.installable(kinds)
    return [
        _role("cluster-admin", {**_rule("*", ["*"], "*")}, {**_paths("*"), "verbs": ["*"]}),
        _role("system:discovery", _paths(*_DISCOVERY_PATHS, *_HEALTH_PATHS, *_VERSION_PATHS)),
        _role("system:public-info-viewer", _paths(*_HEALTH_PATHS, *_VERSION_PATHS)),
        _role(
            "system:basic-user",
            _rule(_AUTHORIZATION, _CREATE, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
            _rule(_AUTHENTICATION, _CREATE, "selfsubjectreviews"),
        ),
        _role(
            "system:auth-delegator",
            _rule(_AUTHENTICATION, _CREATE, "tokenreviews"),
            _rule(_AUTHORIZATION, _CREATE, "subjectaccessreviews"),
        ),
        _role("system:monitoring", _paths(*_HEALTH_PATHS, "/metrics", "/metrics/slis")),
        _role("system:aggregate-to-view", *_VIEW, to="view"),
        _role("system:aggregate-to-edit", *_EDIT, to="edit"),
        _role("system:aggregate-to-admin", *_ADMIN, to="admin"),
        _role(
            "system:aggregated-metrics-reader",
            _rule("metrics.k8s.io", ["get", "list", "watch"], "pods", "nodes"),
            to="view",
        ),
        *(_marked(role) for role in user_roles.roles(own, {})),
        _aggregated("view", ("view",), to="edit"),
        _aggregated("edit", ("edit",), to="admin"),
        _aggregated("admin", ("admin",)),
    ]


def cluster_role_bindings() -> list[Document]:
    """The ClusterRoleBindings."""
    return [
        _binding("cluster-admin", "system:masters"),
        _binding("system:discovery", AUTHENTICATED),
        _binding("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
        _binding("system:basic-user", AUTHENTICATED),
        _binding("system:monitoring", "system:monitoring"),
    ]


def completed(stored: Document, wanted: Document) -> Document:
    """A stored role or binding with the rules and subjects that it lacks; itself if it lacks none."""
    annotations = stored["metadata"].get("annotations") or {}
    if annotations.get(AUTOUPDATE) == "false":
        return stored
    found = dict(stored)
    fields = ("subjects",) if "aggregationRule" in wanted else ("rules", "subjects")
    for field in fields:
        present = stored.get(field) or []
        lacking = [item for item in wanted.get(field, ()) if item not in present]
        if lacking:
            found[field] = [*present, *lacking]
    return found


def _role(name: str, *rules: Document, to: str = "") -> Document:
    labels = {f"{AGGREGATE}-{to}": "true"} if to else {}
    return _marked({"metadata": {"name": name, "labels": labels}, "rules": list(rules)})


def _aggregated(name: str, sources: Sequence[str], to: str = "") -> Document:
    selectors = [{"matchLabels": {f"{AGGREGATE}-{source}": "true"}} for source in sources]
    return {**_role(name, to=to), "aggregationRule": {"clusterRoleSelectors": selectors}}


def _binding(role: str, *groups: str) -> Document:
    subjects = [{"apiGroup": rbac.GROUP, "kind": rbac.USER_GROUP, "name": each} for each in groups]
    reference = {"apiGroup": rbac.GROUP, "kind": rbac.CLUSTERROLE, "name": role}
    return _marked({"metadata": {"name": role}, "roleRef": reference, "subjects": subjects})


def _marked(document: Document) -> Document:
    meta = document["metadata"]
    labels = {_BOOTSTRAPPING: "rbac-defaults", **(meta.get("labels") or {})}
    return {**document, "metadata": {**meta, "labels": labels, "annotations": {AUTOUPDATE: "true"}}}
