"""What a cluster always has.

An account and the authority's certificate in every namespace, and the Service of the API server.
Written by the server when it starts, when a namespace is made, and when one of them is deleted, so
that a namespace that is there has them; no controller needs to run for that.
"""

import base64
import ipaddress

import msgspec

from grange.api import codec
from grange.api.bootstrap_tokens import CLUSTER_INFO, PUBLIC
from grange.api.kinds import (
    CONFIGMAP,
    ENDPOINTS,
    ENDPOINTSLICE,
    NAMESPACE,
    SERVICE,
    SERVICEACCOUNT,
)
from grange.api.kinds.endpointslice import SERVICE_LABEL
from grange.api.kinds.serviceaccount import DEFAULT, ROOT_CA
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import AlreadyExists, ApiError
from grange.apiserver import storage
from grange.apiserver.registry import Place, Registry
from grange.apiserver.request_info import Target
from grange.apiserver.write_options import WriteOptions
from grange.base.log import Logger

KUBERNETES = "kubernetes"
"""The Service of the API server, in the namespace default."""

_HOME = "default"
_PORT = 443
_DELETED = frozenset({CONFIGMAP, SERVICEACCOUNT, SERVICE, ENDPOINTS, ENDPOINTSLICE})
_OPTIONS = WriteOptions()


class _Meta(msgspec.Struct, frozen=True):
    name: str


class _Named(msgspec.Struct, frozen=True):
    metadata: _Meta


_named = msgspec.json.Decoder(_Named)


class ClusterObjects:
    """Keeps them there.

    Args:
        registry: where they are written.
        ca_pem: the certificate of the authority, as text; empty where nothing is served over TLS.
        log: where what could not be written is logged.
    """

    def __init__(self, registry: Registry, *, ca_pem: str, log: Logger) -> None:
        self._registry = registry
        self._ca_pem = ca_pem
        self._log = log
        self._address: tuple[str, int] | None = None

    async def ensure_all(self) -> None:
        """Write what any namespace lacks.

        Raises:
            StoreError: the store cannot be read.
        """
        found = await self._registry.store.list(storage.prefix(NAMESPACE))
        for entry in self._registry.unreadable.readable(found.entries):
            await self._ensure(storage.names_of(entry.key, NAMESPACE)[1])

    async def publish(self, host: str, port: int) -> None:
        """Write the Service of the API server, which is served at this address."""
        self._address = (host, port)
        await self._ensure(_HOME)
        await self._ensure(PUBLIC)

    async def after(self, target: Target, body: bytes) -> None:
        """Write what a request that succeeded has made necessary.

        Args:
            target: what it was about.
            body: its answer.
        """
        if target.verb == "create" and target.info is NAMESPACE and not target.subresource:
            try:
                await self._ensure(_named.decode(body).metadata.name)
            except msgspec.ValidationError:  # the answer is a table
                await self.ensure_all()
        elif target.verb.startswith("delete") and target.info in _DELETED and target.namespace:
            await self._ensure(target.namespace)

    async def _ensure(self, namespace: str) -> None:
        try:
            await self._put(SERVICEACCOUNT, namespace, DEFAULT, {})
            if self._ca_pem:
                data = {"data": {"ca.crt": self._ca_pem}}
                await self._put(CONFIGMAP, namespace, ROOT_CA, data)
            if namespace == PUBLIC and self._ca_pem and self._address is not None:
                data = {"data": {"kubeconfig": _cluster_info(self._ca_pem, *self._address)}}
                await self._put(CONFIGMAP, PUBLIC, CLUSTER_INFO, data)
            if namespace == _HOME and self._address is not None:
                await self._put_service(*self._address)
        except ApiError as error:
            # Nothing can be created in a namespace that is going; the rest is tried at the next start.
            self._log.debug("objects of a namespace not written", namespace=namespace, error=error)

    async def _put_service(self, host: str, port: int) -> None:
        ports: list[Document] = [{"name": "https", "port": _PORT, "protocol": "TCP"}]
        spec = {"ports": [{**ports[0], "targetPort": port}], "type": "ClusterIP"}
        labels = {"component": "apiserver", "provider": "kubernetes"}
        await self._put(SERVICE, _HOME, KUBERNETES, {"spec": spec}, labels)
        try:
            version = ipaddress.ip_address(host).version
        except ValueError:
            return  # endpoints are addresses, and this is a name
        ports[0]["port"] = port
        subset = {"addresses": [{"ip": host}], "ports": ports}
        await self._put(ENDPOINTS, _HOME, KUBERNETES, {"subsets": [subset]})
        fields: Document = {
            "addressType": f"IPv{version}",
            "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
            "ports": ports,
        }
        await self._put(ENDPOINTSLICE, _HOME, KUBERNETES, fields, {SERVICE_LABEL: KUBERNETES})

    async def _put(
        self,
        info: AnyKind,
        namespace: str,
        name: str,
        fields: Document,
        labels: dict[str, str] | None = None,
    ) -> None:
        """Create an object, or give the one that is there these fields."""
        place = Place(info, namespace, name)
        if self._registry.store.latest(place.key) is None:
            document: Document = {"metadata": {"name": name}, **fields}
            if labels:
                document["metadata"]["labels"] = labels
            try:
                await self._registry.create(info, namespace, document, _OPTIONS)
            except AlreadyExists:
                return
        elif fields:

            def change(old: Document) -> Document:
                spec = {**(old.get("spec") or {}), **(fields.get("spec") or {})}
                return {**old, **fields, **({"spec": spec} if spec else {})}

            await self._registry.update(place, change, _OPTIONS)


def _cluster_info(ca_pem: str, host: str, port: int) -> str:
    """A kubeconfig without users, as machines that join look for it; JSON, which is YAML."""
    cluster = {
        "certificate-authority-data": base64.b64encode(ca_pem.encode()).decode(),
        "server": f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "", "cluster": cluster}],
        "contexts": None,
        "users": None,
    }
    return codec.encode_any(document).decode()
