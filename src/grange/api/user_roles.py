"""Permissions of a cluster's users for our kinds, added to Kubernetes' own roles.

A user who may edit a namespace may create pods there already, so a ReplicationController adds no
permission. Audit records are for reading: only the controllers write them.
"""

from collections.abc import Iterable

from grange.api.kinds import AUDITRECORD
from grange.api.meta import Document
from grange.api.scheme import AnyKind

_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to"
_READ = ["get", "list", "watch"]
_WRITE = ["create", "update", "patch", "delete", "deletecollection"]


def roles(kinds: Iterable[AnyKind], labels: Document) -> list[Document]:
    """The ClusterRoles that become parts of ``view``, and of ``edit`` and ``admin``.

    Args:
        kinds: our own.
        labels: for both.
    """
    listed = sorted(kinds, key=lambda info: (info.group, info.plural))
    written = [info for info in listed if info.namespaced and info is not AUDITRECORD]
    return [
        _role("view", ("view",), [_rule(info, _READ) for info in listed], labels),
        _role(
            "edit",
            ("edit", "admin"),
            [
                *(_rule(info, _WRITE) for info in written),
                *(_rule(info, ["update", "patch"], "scale") for info in written if info.scale),
            ],
            labels,
        ),
    ]


def _role(name: str, to: tuple[str, ...], rules: list[Document], labels: Document) -> Document:
    marks = {f"{_AGGREGATE}-{role}": "true" for role in to}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"grange-{name}", "labels": {**labels, **marks}},
        "rules": rules,
    }


def _rule(info: AnyKind, verbs: list[str], part: str = "") -> Document:
    resource = f"{info.plural}/{part}" if part else info.plural
    return {"apiGroups": [info.group], "resources": [resource], "verbs": list(verbs)}
