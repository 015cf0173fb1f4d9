"""The token of a pod's service account, and what a program needs to find and use it.

Kubernetes mounts it at a fixed path, which programs that share a file system cannot have each for
itself. So the directory is named in ``GRANGE_SERVICE_ACCOUNT``, and holds a kubeconfig, which
``KUBECONFIG`` names: clients that look for that work as they are.
"""

import base64
from collections.abc import Iterable, Mapping

from grange.agent.errors import NotCreatableError
from grange.api import codec
from grange.api.kinds import POD, SERVICEACCOUNT
from grange.api.kinds.pod import Container, Pod
from grange.api.kinds.serviceaccount import MOUNTED_TOKEN_S
from grange.api.meta import Document
from grange.api.pod_fields import TOKEN_MOUNT
from grange.api.status import NotFound
from grange.client.client import Client

HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"
DIRECTORY = "GRANGE_SERVICE_ACCOUNT"
KUBECONFIG_FILE = "kubeconfig"
_SECONDS = 3600

Tokens = Mapping[tuple[str, int], str]
"""Audience (empty for the API server) and asked life in seconds to token."""


def api_variables(host: str, port: int) -> dict[str, str]:
    """The variables by which programs find the API server."""
    return {HOST: host, PORT: str(port), f"{PORT}_HTTPS": str(port)}


async def fetch_tokens(client: Client, pod: Pod) -> Tokens:
    """A token for each projection of the pod's volumes, bound to the pod.

    Raises:
        NotCreatableError: there is no such account.
        ApiError: the API cannot be asked.
    """
    found: dict[tuple[str, int], str] = {}
    for projection in _projections(pod):
        audience, seconds = key = asked(projection)
        if key in found:
            continue
        bound = {
            "apiVersion": "v1",
            "kind": POD.kind,
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
        }
        spec: Document = {"boundObjectRef": bound, "expirationSeconds": seconds}
        if audience:
            spec["audiences"] = [audience]
        name, namespace = pod.spec.service_account_name, pod.metadata.namespace
        body: Document = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        try:
            answer = await client.post(
                SERVICEACCOUNT, name, namespace, "token", {**body, "spec": spec}
            )
        except NotFound as error:
            raise NotCreatableError(
                f'there is no ServiceAccount "{name}" in namespace "{namespace}"; create it, or '
                "set automountServiceAccountToken to false in a new pod"
            ) from error
        found[key] = str(answer["status"]["token"])
    return found


def asked(projection: Document) -> tuple[str, int]:
    """Audience and life that a projection asks for."""
    return str(projection.get("audience") or ""), int(
        projection.get("expirationSeconds") or _SECONDS
    )


def short_lives_s(pod: Pod) -> Iterable[int]:
    """The lives in seconds of the tokens that may end while the pod runs."""
    for projection in _projections(pod):
        audience, seconds = asked(projection)
        if audience or seconds != MOUNTED_TOKEN_S:
            yield seconds


def _projections(pod: Pod) -> Iterable[Document]:
    for volume in pod.spec.volumes:
        for part in (volume.projected or {}).get("sources") or ():
            if (projection := part.get("serviceAccountToken")) is not None:
                yield projection


def kubeconfig(host: str, port: str, *, ca: bytes, token: str, namespace: str) -> bytes:
    """A kubeconfig for the account; JSON, which is YAML."""
    address = f"[{host}]" if ":" in host else host
    cluster: Document = {"server": f"https://{address}:{port}"}
    if ca:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    context = {"cluster": "kubernetes", "user": "account", "namespace": namespace}
    return codec.encode_any(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kubernetes", "cluster": cluster}],
            "users": [{"name": "account", "user": {"token": token}}],
            "contexts": [{"name": "in-cluster", "context": context}],
            "current-context": "in-cluster",
        }
    )


def variables(container: Container, paths: Mapping[str, str]) -> dict[str, str]:
    """Where a container finds its account; nothing for one without a token.

    Args:
        container: of the pod.
        paths: volume name to the path of its directory.
    """
    for mount in container.volume_mounts:
        if is_token(mount.mount_path) and (path := paths.get(mount.name)):
            return {DIRECTORY: path, "KUBECONFIG": f"{path}/{KUBECONFIG_FILE}"}
    return {}


def is_token(mount_path: str) -> bool:
    """Whether a mount is in the place where clients look for the account."""
    return mount_path.rstrip("/") == TOKEN_MOUNT
