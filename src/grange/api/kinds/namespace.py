"""Namespace: a scope for names; deleting it deletes what it holds."""

import msgspec

from grange.api import names
from grange.api.fields import readers
from grange.api.meta import Condition, Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"


class NamespaceSpec(View, frozen=True):
    """Who must be done before the namespace may go."""

    finalizers: tuple[str, ...] = ()


class NamespaceStatus(View, frozen=True):
    """Active, or Terminating once deletion is asked for."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(Resource, frozen=True):
    """A scope for the names of objects."""

    spec: NamespaceSpec = msgspec.field(default_factory=NamespaceSpec)
    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


def _default(document: Document) -> None:
    meta = document.setdefault("metadata", {})
    spec = document.setdefault("spec", {})
    # A namespace on its way out loses its finalizers one by one: do not give them back.
    if not meta.get("deletionTimestamp"):
        spec.setdefault("finalizers", [FINALIZER])
    if name := meta.get("name"):
        meta["labels"] = {**(meta.get("labels") or {}), NAME_LABEL: name}
    status = document["status"] = document.get("status") or {}
    status.setdefault("phase", "Active")


NAMESPACE = KindInfo(
    group="",
    version="v1",
    kind="Namespace",
    plural="namespaces",
    view=Namespace,
    schema="io.k8s.api.core.v1.Namespace",
    namespaced=False,
    short_names=("ns",),
    subresources=("finalize",),
    columns=(Column("Status", cells.text("status.phase"), description="Active or Terminating."),),
    fields=readers("status.phase"),
    default=_default,
    name_rule=names.check_dns_label,
)
