"""Which credentials a registry is given, from Secrets that pods name for pulling; pure.

The formats are those of Kubernetes' Secret types ``kubernetes.io/dockerconfigjson`` and
``kubernetes.io/dockercfg`` (https://kubernetes.io/docs/concepts/configuration/secret/).
"""

import base64
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from grange.agent.image_store import RegistryCredentials

CONFIG_JSON, CONFIG = ".dockerconfigjson", ".dockercfg"
_HUB = "docker.io"
_HUB_NAMES = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})
_SCHEME = re.compile(r"^https?://")
_VERSION = re.compile(r"/v[12]/?$")


def of_secret(data: Mapping[str, str], reference: str) -> list[RegistryCredentials]:
    """The credentials in a Secret that fit an image; the closest match first.

    Args:
        data: of the Secret: key to base64.
        reference: the image, as a manifest names it.

    Returns:
        None of a Secret that holds something else: a registry that asks for more refuses the pull.
    """
    found = []
    host, path = split(reference)
    for place, entry in _entries(data):
        given_host, _, given_path = place.partition("/")
        if not fnmatchcase(host, given_host) or not f"{path}/".startswith(
            f"{given_path}/" if given_path else ""
        ):
            continue
        credentials = _credentials(entry)
        if credentials is not None:
            found.append((len(place), credentials))
    found.sort(key=lambda item: -item[0])
    return [credentials for _, credentials in found]


def split(reference: str) -> tuple[str, str]:
    """Host of the registry and path of the repository, without tag and digest.

    Without a host it is Docker Hub: a host has a dot or a port, or is ``localhost``.
    """
    name = reference.partition("@")[0]
    head, slash, rest = name.partition("/")
    if slash and ("." in head or ":" in head or head == "localhost"):
        host, path = head, rest
    else:
        host, path = _HUB, name
    last = path.rpartition("/")[2]
    if ":" in last:
        path = path[: -len(last)] + last.partition(":")[0]
    if host in _HUB_NAMES:
        host = _HUB
        path = path if "/" in path else f"library/{path}"
    return host, path


def _entries(data: Mapping[str, str]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for key in (CONFIG_JSON, CONFIG):
        try:
            document = msgspec.json.decode(base64.b64decode(data.get(key, "")) or b"{}")
        except (ValueError, msgspec.DecodeError):
            continue
        table = (
            document.get("auths") if key == CONFIG_JSON and isinstance(document, dict) else document
        )
        if not isinstance(table, dict):
            continue
        for place, entry in table.items():
            if isinstance(entry, dict):
                name = _VERSION.sub("", _SCHEME.sub("", place)).rstrip("/")
                yield _HUB if name in _HUB_NAMES else name, entry


def _credentials(entry: Mapping[str, Any]) -> RegistryCredentials | None:
    username, password = entry.get("username"), entry.get("password")
    joined = entry.get("auth")
    if isinstance(joined, str) and joined:
        try:
            username, _, password = base64.b64decode(joined).decode().partition(":")
        except ValueError:
            return None
    texts = [username, password, entry.get("identitytoken"), entry.get("registrytoken")]
    if not any(isinstance(text, str) and text for text in texts):
        return None
    return RegistryCredentials(*(text if isinstance(text, str) else "" for text in texts))
