"""The roles and bindings that every server has, named as in Kubernetes."""

from collections.abc import Sequence
from functools import cache

from grange.api.meta import Document

_RBAC = "rbac.authorization.k8s.io"
_HEALTH_PATHS = ("/healthz", "/healthz/*", "/livez", "/livez/*", "/readyz", "/readyz/*")
_VERSION_PATHS = ("/version", "/version/")
_DISCOVERY_PATHS = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/openapi",
    "/openapi/*",
)
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


def _paths(*paths: str) -> Document:
    return {"nonResourceURLs": list(paths), "verbs": ["get"]}


def _resources(group: str, verbs: Sequence[str], *resources: str) -> Document:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _role(name: str, *rules: Document) -> Document:
    return {"metadata": {"name": name}, "rules": list(rules)}


def _binding(role: str, *groups: str) -> Document:
    return {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "Group", "name": group} for group in groups],
    }


@cache
def cluster_roles() -> tuple[Document, ...]:
    """The ClusterRoles."""
    every: Document = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    return (
        _role("cluster-admin", every, {"nonResourceURLs": ["*"], "verbs": ["*"]}),
        _role("system:discovery", _paths(*_DISCOVERY_PATHS, *_HEALTH_PATHS, *_VERSION_PATHS)),
        _role("system:public-info-viewer", _paths(*_HEALTH_PATHS, *_VERSION_PATHS)),
        _role(
            "system:basic-user",
            _resources(
                "authorization.k8s.io",
                ["create"],
                "selfsubjectaccessreviews",
                "selfsubjectrulesreviews",
            ),
            _resources("authentication.k8s.io", ["create"], "selfsubjectreviews"),
        ),
        _role(
            "system:monitoring",
            _paths(*_HEALTH_PATHS, "/metrics", "/metrics/slis"),
        ),
    )


@cache
def cluster_role_bindings() -> tuple[Document, ...]:
    """The ClusterRoleBindings."""
    return (
        _binding("cluster-admin", "system:masters"),
        _binding("system:discovery", AUTHENTICATED),
        _binding("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
        _binding("system:basic-user", AUTHENTICATED),
        _binding("system:monitoring", "system:monitoring"),
    )
