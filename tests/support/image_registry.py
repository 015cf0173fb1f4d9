"""A registry of images on loopback: images made on the spot, with or without a password.

It speaks what a container runtime needs for a pull (the OCI distribution specification): manifests
and blobs, by HTTP without TLS, which runtimes use for addresses of the machine itself.
"""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.support.containerd import digest, image_blobs

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_LIMIT_S = 240.0


class ImageRegistry:
    """One that serves.

    Args:
        credentials: ``user:password`` that it asks for; empty for none.

    Attributes:
        address: ``host:port``, as names of images have it.
        gate: what lets layers come whole; until it is set half of them comes.
    """

    def __init__(self, credentials: str) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self._manifests: dict[str, bytes] = {}
        self._blobs: dict[str, bytes] = {}
        self._layers: set[str] = set()
        self._given = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        self._asks = bool(credentials)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.address = f"127.0.0.1:{self.server.server_port}"

    def add(self, name: str, entrypoint: tuple[str, ...]) -> str:
        """Have an image that holds busybox; the reference to pull it by.

        Args:
            name: ``repository:tag``.
            entrypoint: of the image.
        """
        layer, config, manifest = image_blobs(entrypoint, name)
        self._blobs |= {digest(blob): blob for blob in (layer, config)}
        self._layers.add(digest(layer))
        repository, _, tag = name.partition(":")
        for reference in (tag, digest(manifest)):
            self._manifests[f"{repository}/manifests/{reference}"] = manifest
        return f"{self.address}/{name}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.answer(self, body=True)

            def do_HEAD(self) -> None:
                registry.answer(self, body=False)

            def log_message(self, *words: object) -> None:
                pass  # tests read what the runtime reports

        return Handler

    def answer(self, request: BaseHTTPRequestHandler, *, body: bool) -> None:
        """Answer one request."""
        if self._asks and request.headers.get("Authorization") != self._given:
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="registry"')
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        path = unquote(request.path.partition("?")[0]).removeprefix("/v2/")
        blob = path.rpartition("/blobs/")[2]
        found = self._manifests.get(path) or self._blobs.get(blob) or (b"" if not path else None)
        request.send_response(200 if found is not None else 404)
        request.send_header("Content-Length", str(len(found or b"")))
        if path in self._manifests and found is not None:
            request.send_header("Content-Type", _MANIFEST)
            request.send_header("Docker-Content-Digest", digest(found))
        request.end_headers()
        if not body or not found:
            return
        half = len(found) // 2 if blob in self._layers else len(found)
        request.wfile.write(found[:half])
        request.wfile.flush()
        if half < len(found):
            self.gate.wait(_LIMIT_S)
            request.wfile.write(found[half:])


@contextmanager
def serving(credentials: str = "") -> Iterator[ImageRegistry]:
    """One that serves until the end of the block."""
    made = ImageRegistry(credentials)
    thread = threading.Thread(target=made.server.serve_forever, name="image registry")
    thread.start()
    try:
        yield made
    finally:
        made.gate.set()
        made.server.shutdown()
        made.server.server_close()
        thread.join()
