"""Namespaces have to exist before things are put into them, and stay closed once they are going.

The check reads the newest *accepted* state, so nothing can slip into a namespace between the
decision to delete it and the disk's confirmation.
"""

import msgspec

from grange.api.scheme import AnyKind
from grange.api.status import Cause, Forbidden, InternalError, NotFound
from grange.apiserver.admission import Attributes
from grange.apiserver.deletion import is_namespace
from grange.base.bounded import BoundedDict
from grange.store.interface import Store

BUILT_IN = ("default", "kube-system", "kube-node-lease", "kube-public")
_REMEMBERED_MAX = 4096


class _Meta(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None


class _Namespace(msgspec.Struct):
    metadata: _Meta


_decoder = msgspec.json.Decoder(_Namespace)


class NamespaceLifecycle:
    """The rule.

    Args:
        store: where namespaces are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._going: BoundedDict[str, tuple[int, bool]] = BoundedDict(
            _REMEMBERED_MAX
        )  # name → revision and whether it is going

    def admit(self, attempt: Attributes) -> None:
        """Let the write pass.

        Raises:
            NotFound: the namespace does not exist.
            Forbidden: the namespace is going, or is one that the system needs.
        """
        if attempt.verb == "delete":
            if is_namespace(attempt.info) and attempt.name in BUILT_IN:
                raise Forbidden(
                    f'namespaces "{attempt.name}" is forbidden: this namespace may not be deleted',
                    kind="namespaces",
                    name=attempt.name,
                )
        elif attempt.verb == "create" and attempt.namespace:
            self._check_open(attempt.info, attempt.namespace, attempt.name)

    def _check_open(self, info: AnyKind, namespace: str, name: str) -> None:
        entry = self._store.latest(f"/core/namespaces/{namespace}")
        if entry is None:
            self._going.pop(namespace, None)
            raise NotFound(f'namespaces "{namespace}" not found', kind="namespaces", name=namespace)
        known = self._going.get(namespace)
        if known is None or known[0] != entry.revision:
            try:
                going = _decoder.decode(entry.value).metadata.deletion_timestamp is not None
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise InternalError(
                    f'namespaces "{namespace}" cannot be read from the store: {error}'
                ) from error
            known = self._going[namespace] = (entry.revision, going)
        if known[1]:
            raise Forbidden(
                f'{info.qualified} "{name}" is forbidden: unable to create new content in '
                f"namespace {namespace} because it is being terminated",
                kind=info.plural,
                name=name,
                group=info.group,
                causes=[
                    Cause(
                        "NamespaceTerminating",
                        f"namespace {namespace} is being terminated",
                        "metadata.namespace",
                    )
                ],
            )
