"""Every pod has a service account, and a token of it unless the account or the pod declines.

The token comes in a volume of the shape that Kubernetes gives it, named by a prefix that clients
know. Its name is the same for all pods, so that pods of one template still have the same volumes.
"""

from functools import cache
from typing import Any

import msgspec

from grange.api.kinds import POD
from grange.api.kinds.serviceaccount import DEFAULT, MOUNTED_TOKEN_S, ROOT_CA
from grange.api.meta import Document
from grange.api.pod_fields import TOKEN_MOUNT
from grange.api.status import Forbidden
from grange.apiserver.admission import Attributes
from grange.base.bounded import BoundedDict
from grange.store.interface import Store

VOLUME_PREFIX = "kube-api-access-"
VOLUME = f"{VOLUME_PREFIX}token"
_FILE_MODE = 0o644
_REMEMBERED_MAX = 1024


class _Account(msgspec.Struct, frozen=True, rename="camel"):
    automount_service_account_token: bool | None = None
    image_pull_secrets: list[dict[str, Any]] = []


_decoder = msgspec.json.Decoder(_Account)
_NO_ACCOUNT = _Account()


class _PodDefaults(msgspec.Struct, frozen=True):
    """What the pods of a service account get by default."""

    account: _Account
    has_ca: bool

    def apply(self, spec: Document) -> None:
        """Set the image pull secrets, and mount the token unless the account or the pod declines."""
        account = self.account
        if account.image_pull_secrets and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [dict(item) for item in account.image_pull_secrets]
        mounts = spec.get("automountServiceAccountToken")
        if mounts is None:
            mounts = account.automount_service_account_token
        if mounts is not False:
            _mount(spec, has_ca=self.has_ca)


class ServiceAccounts:
    """The rule.

    Args:
        store: where accounts are.
        has_ca: whether namespaces have the certificate of the authority.
    """

    def __init__(self, store: Store, *, has_ca: bool) -> None:
        self._store = store
        self._has_ca = has_ca
        self._read: BoundedDict[str, tuple[int, _PodDefaults]] = BoundedDict(
            _REMEMBERED_MAX
        )  # key → revision and the account's

    def admit(self, attempt: Attributes) -> _PodDefaults | None:
        """Find a new pod's account.

        Raises:
            Forbidden: there is no such account.
        """
        document = attempt.document
        if attempt.verb != "create" or attempt.info is not POD or document is None:
            return None
        spec = document.get("spec")
        if not isinstance(spec, dict):
            return None
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or DEFAULT
        if not isinstance(name, str):
            return None
        found = self._find(attempt.namespace, name)
        if found is None:
            raise Forbidden(
                f'pods "{attempt.name}" is forbidden: error looking up service account '
                f'{attempt.namespace}/{name}: serviceaccount "{name}" not found; create it first',
                kind="pods",
                name=attempt.name,
            )
        return found

    def _find(self, namespace: str, name: str) -> _PodDefaults | None:
        key = f"/core/serviceaccounts/{namespace}/{name}"
        entry = self._store.latest(key)
        if entry is None:
            self._read.pop(key, None)
            # The default one is on its way where a server of an earlier release made the namespace.
            return _PodDefaults(_NO_ACCOUNT, self._has_ca) if name == DEFAULT else None
        known = self._read.get(key)
        if known is None or known[0] != entry.revision:
            found = _PodDefaults(_read(entry.value), self._has_ca)
            known = self._read[key] = (entry.revision, found)
        return known[1]


def _read(body: bytes) -> _Account:
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError:
        return _NO_ACCOUNT


def _mount(spec: Document, *, has_ca: bool) -> None:
    """Mount the token's volume in every container that has nothing in its place."""
    wanting: list[Document] = []
    for field in ("initContainers", "containers"):
        for container in _objects(spec.get(field)):
            mounts = container.get("volumeMounts")
            if all(item.get("mountPath") != TOKEN_MOUNT for item in _objects(mounts)):
                wanting.append(container)
    if not wanting:
        return
    volumes = spec.get("volumes")
    if not _is_list(volumes):
        return
    name = next((item["name"] for item in _objects(volumes) if _is_token(item)), "")
    if not name:
        name = VOLUME
        spec["volumes"] = [*(volumes or ()), _volume(has_ca=has_ca)]
    for container in wanting:
        mounts = container.get("volumeMounts")
        if _is_list(mounts):
            mount = {"name": name, "readOnly": True, "mountPath": TOKEN_MOUNT}
            container["volumeMounts"] = [*(mounts or ()), mount]


def _is_list(items: object) -> bool:
    """Whether it is a list or left out; anything else is refused by its schema."""
    return items is None or isinstance(items, list)


def _objects(items: object) -> list[Document]:
    """The objects of a list; its schema has not been looked at yet."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _is_token(volume: Document) -> bool:
    name = volume.get("name")
    return isinstance(name, str) and name.startswith(VOLUME_PREFIX) and "projected" in volume


@cache
def _volume(*, has_ca: bool) -> Document:
    """The token's volume, with all defaults: nothing writes to it, so all pods share it."""
    field = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources: list[Document] = [
        {"serviceAccountToken": {"expirationSeconds": MOUNTED_TOKEN_S, "path": "token"}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": field}]}},
    ]
    if has_ca:
        items = [{"key": "ca.crt", "path": "ca.crt"}]
        sources.insert(1, {"configMap": {"name": ROOT_CA, "items": items}})
    return {"name": VOLUME, "projected": {"sources": sources, "defaultMode": _FILE_MODE}}
