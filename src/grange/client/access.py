"""How to reach one API server: what a kubeconfig or a pod's service account comes down to."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one API server; secrets are left out of its ``repr``.

    Attributes:
        server: base URL.
        context: the context's name; empty inside a cluster.
        namespace: the namespace to work in unless another is given.
        ca_pem: the certificates to trust, PEM; empty trusts the system's.
        token: bearer token.
        token_file: where the token is kept when it changes over time; read again as it changes.
        certificate_pem: client certificate.
        key_pem: its private key.
        server_name: the name to expect in the server's certificate; empty is the URL's host.
        insecure: do not check the server's certificate.
    """

    server: str
    context: str = ""
    namespace: str = "default"
    ca_pem: bytes = b""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    certificate_pem: bytes = field(default=b"", repr=False)
    key_pem: bytes = field(default=b"", repr=False)
    server_name: str = ""
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class ServiceAccountAccess:
    """Where a pod finds the cluster that it runs in, and who it is there.

    Attributes:
        directory: where ``token``, ``ca.crt`` and ``namespace`` are mounted.
        host: ``KUBERNETES_SERVICE_HOST``.
        port: ``KUBERNETES_SERVICE_PORT``.
    """

    directory: Path
    host: str
    port: str
