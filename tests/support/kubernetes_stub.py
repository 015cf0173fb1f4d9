"""Our server in the shape of Kubernetes', as far as programs that run against it notice.

A user of ``Kubernetes`` may do what a role permits and nothing else; many bindings in one request
are not taken; our kinds are known by their CustomResourceDefinitions alone, so every object of them
that is written must fit those, strategic patches of them are not understood, and a status is written
by its own path only. ``Kubelet`` renews the Lease of its node, and writes nothing else in it.
"""

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
from tests.unit.api import customresources

from grange.api import codec, crds
from grange.api.http import STRATEGIC_MERGE_PATCH, Request, Response
from grange.api.kinds import BUILT_IN, POD
from grange.api.kinds.lease import NODE_LEASES, STATUS_SYNCED_UNTIL
from grange.api.meta import Document
from grange.api.schema.structural import structural
from grange.api.scheme import AnyKind, Scheme
from grange.api.status import Conflict, Forbidden, Timeout, UnsupportedMediaType
from grange.apiserver.request_info import Target, parse
from grange.app.install.rbac import Permission
from grange.client.transport import Transport

_OURS = dict.fromkeys(crds.installable(BUILT_IN))
_WRITES = {"create", "update", "patch"}
_FENCE = {"uid", "resourceVersion"}

Used = tuple[str, str, str, str]  # namespace of the role, resource, name, verb


@cache
def _schema(info: AnyKind) -> Document:
    return structural(info)


def granted(rights: Iterable[Permission]) -> set[Used]:
    """Everything that a list of rights allows."""
    return {(r.namespace, _qualified(r), r.name, verb) for r in rights for verb in r.verbs}


def _qualified(right: Permission) -> str:
    return f"{right.resource}.{right.kind.group}" if right.kind.group else right.resource


class Kubernetes:
    """A way to the server for a user who has some permissions.

    Args:
        inner: the way itself.
        rights: what may be asked.

    Attributes:
        used: what of it was.
        wrongs: what a server of Kubernetes would have refused, or understood otherwise.
        troubled: while it is set, the first write of each sort that states what it was decided from
            comes too late (a conflict), and of the next the answer is lost.
    """

    def __init__(self, rights: Iterable[Permission]) -> None:
        self._scheme = Scheme(BUILT_IN)
        self._rights = [*rights]
        self._troubles: Counter[tuple[str, str]] = Counter()
        self.used: set[Used] = set()
        self.wrongs: list[str] = []
        self.troubled = False

    def tap(self, inner: Transport) -> Transport:
        """The same for one more component."""
        return _Way(self, inner)

    def refusal(self, request: Request) -> Response | None:
        """The answer to what may not be asked; None where it may."""
        target = parse(request, self._scheme)
        if target is None:
            self.wrongs.append(f"{request.method} {request.path} asks for no resource")
            return _refused(Forbidden(request.path, kind="", name=""))
        if target.info is POD and target.subresource == "binding" and not target.name:
            # A path that it does not know is refused before it is looked for.
            return _refused(Forbidden("bindings is forbidden", kind="bindings", name=""))
        right = next((r for r in self._rights if _allows(r, target, request)), None)
        if right is None:
            denied = f"{target.verb} {target.resource} in {target.namespace or 'the cluster'!r}"
            self.wrongs.append(f"forbidden: {denied}")
            return _refused(Forbidden(denied, kind=target.info.plural, name=target.name))
        self.used.add((right.namespace, _qualified(right), right.name, target.verb))
        self._judge_form(target, request)
        if target.info in _OURS and request.headers.get("content-type") == STRATEGIC_MERGE_PATCH:
            self.wrongs.append(f"strategic patch of {target.resource}")
            return _refused(UnsupportedMediaType("no strategic merge patch", kind="", name=""))
        return None

    def _judge_form(self, target: Target, request: Request) -> None:
        if target.verb != "patch":
            return
        patch: Any = msgspec.json.decode(request.body)
        if not isinstance(patch, dict):
            return
        meta = {*(patch.get("metadata") or {})} - _FENCE
        if target.subresource == "status" and (meta or set(patch) - {"metadata", "status"}):
            self.wrongs.append(f"{target.resource}: more than the status: {sorted(meta)}")
        if not target.subresource and "status" in patch:
            self.wrongs.append(f"{target.resource}: a status in a write of the object")

    def judge(self, request: Request, response: Response) -> None:
        """Look at what a write made of an object of our kinds."""
        target = parse(request, self._scheme)
        if target is None or target.info not in _OURS or target.verb not in _WRITES:
            return
        if response.status < 300 and target.subresource in {"", "status"}:
            document = {**copy.deepcopy(codec.decode_document(response.body)), "metadata": {}}
            for fault in customresources.faults(_schema(target.info), document):
                self.wrongs.append(f"{target.resource}: {fault}")

    def trouble(self, request: Request) -> int:
        """Which trouble befalls a request: 1 is a conflict, 2 a lost answer."""
        if not self.troubled or request.method == "GET":
            return 0
        sort = (request.method, request.path.rpartition("/")[0].rpartition("/")[2])
        if not self._troubles[sort] and b'"resourceVersion":"' not in request.body:
            self._troubles[sort] = 1
        self._troubles[sort] += 1
        return self._troubles[sort]


class _Way:
    def __init__(self, server: Kubernetes, inner: Transport) -> None:
        self._server = server
        self._inner = inner

    async def send(self, request: Request) -> Response:
        refused = self._server.refusal(request)
        if refused is not None:
            return refused
        trouble = self._server.trouble(request)
        if trouble == 1:
            return _refused(Conflict("another writer was faster", kind="", name=""))
        response = await self._inner.send(request)
        self._server.judge(request, response)
        if trouble == 2:
            raise Timeout("the answer was lost")
        return response

    async def close(self) -> None:
        await self._inner.close()


class Kubelet:
    """The way of an agent that is none of ours: its Lease shows that it lives, and no more."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.silenced = 0

    async def send(self, request: Request) -> Response:
        if NODE_LEASES in request.path and request.body:
            document = codec.decode_document(request.body)
            if (
                (document.get("metadata") or {})
                .get("annotations", {})
                .pop(STATUS_SYNCED_UNTIL, None)
            ):
                self.silenced += 1
                request = replace(request, body=codec.encode(document))
        return await self._inner.send(request)

    async def close(self) -> None:
        await self._inner.close()


def _allows(right: Permission, target: Target, request: Request) -> bool:
    if right.kind is not target.info or right.part != target.subresource:
        return False
    if target.verb not in right.verbs or right.namespace not in ("", target.namespace):
        return False
    if not right.name:
        return True
    # Who may see one object only must ask for that one only.
    named = request.query.get("fieldSelector") == f"metadata.name={right.name}"
    return right.name == target.name or (target.verb in {"list", "watch"} and named)


def _refused(error: Any) -> Response:
    return Response(error.code, codec.encode(error.status().document()))
