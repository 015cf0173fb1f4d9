"""Many bindings in one request: what goes over the wire, for the server and for its clients.

Kubernetes takes one Binding a request, at the pod's own path. For a scheduler that decides tens of
thousands of times a second that path is most of the work, so our server also takes a *BindingList*
at ``PATH`` and answers with a *StatusList*: one ``Status`` for each binding, in the same order. Each
is accepted or refused for itself, as if it had come alone; what is accepted is written together.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from grange.api.meta import Document
from grange.api.status import APIStatus

PATH = "/api/v1/bindings"
NO_ANNOTATIONS: Mapping[str, str] = MappingProxyType({})
LIMIT = 500  # bindings a request; the commit of so many holds the server's loop for a few ms


class Binding(msgspec.Struct, frozen=True, gc=False):
    """Which pod gets which node.

    Attributes:
        namespace, name: the pod's.
        uid: the pod's, so that no other pod of its name is bound.
        node: the node's name.
        annotations: what the pod's metadata gets with it.
    """

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str] = NO_ANNOTATIONS

    def document(self) -> Document:
        """The v1 Binding."""
        meta: Document = {"name": self.name, "namespace": self.namespace, "uid": self.uid}
        if self.annotations:
            meta["annotations"] = dict(self.annotations)
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": meta,
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }


class StatusList(msgspec.Struct, frozen=True):
    """The answers.

    Attributes:
        items: one for each binding, in the order of the request.
    """

    items: tuple[APIStatus, ...]
