"""kubeconfig files: their text, their document and their entries, with errors that name the place."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from grange.api.meta import Document
from grange.client.errors import KubeconfigError


class ClusterEntry(msgspec.Struct, rename="kebab"):
    """The server of a cluster."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""


class UserEntry(msgspec.Struct, rename="kebab"):
    """The credentials of a user."""

    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None


class ContextEntry(msgspec.Struct):
    """A cluster, a user and a namespace by name."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: ClusterEntry | None = None


class _NamedUser(msgspec.Struct):
    name: str
    user: UserEntry | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: ContextEntry | None = None


class KubeconfigFile(msgspec.Struct, rename="kebab"):
    """The entries of one file."""

    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


def read(path: Path) -> Document | None:
    """The file as a mapping; None where there is no file.

    Raises:
        KubeconfigError: it cannot be read, or is not a mapping in YAML.
    """
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot read it: {error.strerror or error}") from error
    try:
        document = yaml.load(text, yaml.CSafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # Only the place: the text around it may hold a token.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise KubeconfigError(f"{path}: not YAML{where}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise KubeconfigError(f"{path}: not a kubeconfig: the top level must be a mapping")
    return document


def parse(path: Path, document: Document) -> KubeconfigFile:
    """The entries of a document.

    Raises:
        KubeconfigError: a field has another type; names file and field.
    """
    try:
        return msgspec.convert(document, KubeconfigFile)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        name = where.strip("`").removeprefix("$.")
        message = what.replace("`", "").replace("Object", "It")
        raise KubeconfigError(f"{path}: {name or 'the top level'}: {message}") from None


def text_of(path: Path) -> str:
    """The text of a file; empty where there is none.

    Raises:
        KubeconfigError: it cannot be read.
    """
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{path}: cannot read it: {error}") from error
