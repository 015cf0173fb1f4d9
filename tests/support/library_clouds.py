"""Clouds for drivers of libcloud, over HTTP on loopback: OpenStack (identity, compute, images) and DigitalOcean.

They know what the provider asks for, page their lists, and answer the next calls with faults on demand. A machine
boots until it was listed once, and one that is deleted is listed once more.
"""

import json
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from libcloud.compute.base import Node, NodeImage, NodeSize
from libcloud.compute.drivers.dummy import DummyNodeDriver

from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers import ProviderTools, create_provider
from grange.machines.providers.provider import Provider

IMAGE_ID = "5f0b9a3e"
CREATED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class HttpFault:
    """An answer to one call.

    Attributes:
        status: of HTTP; 0: the connection is cut.
        message: of the error.
        headers: further ones.
        done: the call was done nevertheless.
    """

    status: int = 0
    message: str = "no"
    headers: Mapping[str, str] = field(default_factory=dict)
    done: bool = False


@dataclass
class LibraryCloud:
    """A cloud.

    Attributes:
        url: of the server.
        servers: what there is, by id.
        orders: bodies of all creations that were done.
        calls: ``METHOD path`` of all calls, in order.
        faults: what the next calls get, by ``METHOD path``.
        refused: the credentials are not accepted.
        page_size: of lists.
        stale_lists: so many lists of instances show nothing yet.
        fault_of_new: why the next instance fails to start; empty: it starts.
    """

    url: str = ""
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    orders: list[dict[str, Any]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    faults: defaultdict[str, deque[HttpFault | None]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    refused: bool = False
    page_size: int = 100
    stale_lists: int = 0
    fault_of_new: str = ""
    driver: ClassVar[str] = ""

    def fail(self, call: str, *faults: HttpFault | None) -> None:
        """Answer the next calls so, one each; None: as usual."""
        self.faults[call].extend(faults)

    def provider(self, cluster: str = "ours", **config: object) -> Provider:
        """A provider that calls this server."""

        async def read_secret(name: str) -> Mapping[str, bytes]:
            return self.credentials(name)

        tools = ProviderTools(
            cluster,
            LoopClock(),
            Stream(1),
            Logger("test"),
            {"endpoint": self.endpoint},
            read_secret,
        )
        given = {"driver": self.driver, "credentialsSecret": "cloud", **self.options(), **config}
        return create_provider("libcloud", given, tools)

    @property
    def endpoint(self) -> str:
        """What replaces the address of the cloud; empty where the configuration names it."""
        return ""

    def credentials(self, name: str) -> Mapping[str, bytes]:
        """The content of the Secret."""
        raise NotImplementedError

    def options(self) -> dict[str, object]:
        """What the configuration of a pool has."""
        raise NotImplementedError

    def handle(
        self, method: str, path: str, query: Mapping[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        """Answer a call with a status and a document."""
        raise NotImplementedError

    def error(self, status: int, message: str) -> Any:
        """The document of an error."""
        raise NotImplementedError

    def page(self, found: list[Any], number: int) -> tuple[list[Any], bool]:
        """A page of a list, from 1, and whether there is another."""
        start = (number - 1) * self.page_size
        return found[start : start + self.page_size], start + self.page_size < len(found)


class OpenStack(LibraryCloud):
    """Keystone, Nova and Glance, with two flavors and one image."""

    driver = "openstack"

    def credentials(self, name: str) -> Mapping[str, bytes]:
        return {"key": b"someone", "secret": b"hush-hush"}

    def options(self) -> dict[str, object]:
        return {
            "options": {"ex_force_auth_url": self.url, "ex_tenant_name": "project"},
            "prices": {"m1.small": "0.02", "m1.large": "0.08"},
        }

    def handle(
        self, method: str, path: str, query: Mapping[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        match method, path.strip("/").split("/"):
            case "POST", ["v3", "auth", "tokens"]:
                return (401, self.error(401, "no")) if self.refused else (201, self._token())
            case "GET", ["compute", "flavors", "detail"]:
                return 200, {
                    "flavors": [self._flavor("1", "m1.small", 2), self._flavor("2", "m1.large", 8)]
                }
            case "GET", ["image", "v2", "images"]:
                return 200, {"images": [self._image(IMAGE_ID, "debian-13")]}
            case "GET", ["compute", "servers", "detail"]:
                return 200, self._list(int(query.get("marker", ["1"])[0]))
            case "POST", ["compute", "servers"]:
                return self._create(body["server"])
            case "GET", ["compute", "servers", name] if name in self.servers:
                return 200, {"server": self.servers[name]}
            case "DELETE", ["compute", "servers", name] if name in self.servers:
                self.servers[name]["OS-EXT-STS:task_state"] = "deleting"
                return 204, None
        return 404, self.error(404, f"{path} could not be found.")

    def error(self, status: int, message: str) -> Any:
        return {"error": {"code": status, "message": message}}

    def _token(self) -> Any:
        catalog = [
            {
                "type": kind,
                "name": name,
                "endpoints": [
                    {"region": "RegionOne", "interface": "public", "url": f"{self.url}/{kind}"}
                ],
            }
            for kind, name in (("compute", "nova"), ("image", "glance"))
        ]
        user = {"id": "u", "name": "someone"}
        return {
            "token": {
                "expires_at": "2099-01-01T00:00:00Z",
                "catalog": catalog,
                "user": user,
                "roles": [],
            }
        }

    def _flavor(self, name: str, label: str, processors: int) -> Any:
        return {"id": name, "name": label, "ram": 2048, "disk": 20, "vcpus": processors, "swap": ""}

    def _image(self, name: str, label: str) -> Any:
        return {
            "id": name,
            "name": label,
            "status": "active",
            "created_at": CREATED,
            "updated_at": CREATED,
            "visibility": "public",
            "min_ram": 0,
            "min_disk": 0,
        }

    def _list(self, number: int) -> Any:
        if self.stale_lists:
            self.stale_lists -= 1
            return {"servers": []}
        shown, more = self.page(
            [json.loads(json.dumps(one)) for one in self.servers.values()], number
        )
        for one in shown:
            there = self.servers[one["id"]]
            if there.get("OS-EXT-STS:task_state") == "deleting":
                del self.servers[one["id"]]
            elif there["status"] == "BUILD":
                there["status"] = "ACTIVE"
                there["addresses"] = {"net": [{"addr": "10.0.0.4", "version": 4}]}
        links = [{"rel": "next", "href": f"{self.url}/x?marker={number + 1}"}] if more else []
        return {"servers": shown, "servers_links": links}

    def _create(self, order: dict[str, Any]) -> tuple[int, Any]:
        if order["imageRef"] != IMAGE_ID:
            return 400, {"badRequest": {"code": 400, "message": "Can not find requested image"}}
        self.orders.append(order)
        name = f"s-{len(self.orders)}"
        self.servers[name] = {
            "id": name,
            "name": order["name"],
            "status": "BUILD",
            "metadata": order["metadata"],
            "addresses": {},
            "hostId": "h",
            "tenant_id": "t",
            "flavor": {"id": order["flavorRef"]},
            "created": CREATED,
            "updated": CREATED,
            "links": [{"rel": "self", "href": f"{self.url}/compute/servers/{name}"}],
        }
        if self.fault_of_new:
            failed = {"status": "ERROR", "fault": {"code": 500, "message": self.fault_of_new}}
            self.servers[name].update(failed)
            self.fault_of_new = ""
        return 202, {"server": {"id": name, "adminPass": "x"}}


class DigitalOcean(LibraryCloud):
    """Droplets of two sizes in two regions, and one image."""

    driver = "digitalocean"

    @property
    def endpoint(self) -> str:
        return self.url

    def credentials(self, name: str) -> Mapping[str, bytes]:
        return {"key": b"hush-hush"}

    def options(self) -> dict[str, object]:
        return {}

    def handle(
        self, method: str, path: str, query: Mapping[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        number = int(query.get("page", ["1"])[0])
        if self.refused:
            return 401, self.error(401, "Unable to authenticate you")
        match method, path.strip("/").split("/"):
            case "GET", ["v2", "sizes"]:
                return 200, {"sizes": [self._size("s-1vcpu-1gb", 1), self._size("s-2vcpu-2gb", 2)]}
            case "GET", ["v2", "images"]:
                return 200, {"images": [self._image(7, "debian-13")]}
            case "GET", ["v2", "droplets"]:
                return 200, self._list(number)
            case "POST", ["v2", "droplets"]:
                return self._create(body)
            case "DELETE", ["v2", "droplets", name] if name in self.servers:
                del self.servers[name]
                return 204, None
        return 404, self.error(404, "The resource you were accessing could not be found.")

    def error(self, status: int, message: str) -> Any:
        return {"id": "error", "message": message}

    def _size(self, name: str, processors: int) -> Any:
        return {
            "slug": name,
            "memory": 1024 * processors,
            "vcpus": processors,
            "disk": 25,
            "transfer": 1.0,
            "price_monthly": 6.0 * processors,
            "price_hourly": 0.01 * processors,
            "regions": ["fra1", "nyc3"],
        }

    def _image(self, name: int, label: str) -> Any:
        return {
            "id": name,
            "name": label,
            "slug": label,
            "distribution": "Debian",
            "public": True,
            "regions": ["fra1"],
            "min_disk_size": 10,
            "created_at": CREATED,
        }

    def _list(self, number: int) -> Any:
        shown, more = self.page([dict(one) for one in self.servers.values()], number)
        for one in shown:
            self.servers[str(one["id"])]["status"] = "active"
        pages = -(-len(self.servers) // self.page_size)
        links = {"pages": {"last": f"{self.url}/v2/droplets?page={pages}"}} if more else {}
        return {"droplets": shown, "links": links}

    def _create(self, order: dict[str, Any]) -> tuple[int, Any]:
        if str(order["image"]) not in {"7", "debian-13"}:
            return 422, self.error(422, "You specified an invalid image for Droplet creation.")
        self.orders.append(order)
        name = len(self.orders)
        self.servers[str(name)] = {
            "id": name,
            "name": order["name"],
            "status": "new",
            "tags": order["tags"],
            "size_slug": order["size"],
            "created_at": CREATED,
            "networks": {"v4": [{"type": "public", "ip_address": "203.0.113.7"}]},
            "region": {"name": order["region"]},
        }
        return 202, {"droplet": self.servers[str(name)]}


class _Handler(BaseHTTPRequestHandler):
    cloud: LibraryCloud
    lock: threading.Lock

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null") if length else None
        call = f"{self.command} {parts.path}"
        with self.lock:
            self.cloud.calls.append(call)
            waiting = self.cloud.faults[call]
            fault = waiting.popleft() if waiting else None
            status, document = 0, None
            if fault is None or fault.done:
                status, document = self.cloud.handle(
                    self.command, parts.path, parse_qs(parts.query), body
                )
        headers: Mapping[str, str] = {"X-Subject-Token": "t"}
        if fault is not None:
            if not fault.status:
                return  # the connection ends without an answer
            status, headers = fault.status, fault.headers
            document = self.cloud.error(fault.status, fault.message)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        content = b"" if document is None else json.dumps(document).encode()
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815  names of the base class

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@contextmanager
def library_cloud(cloud: LibraryCloud) -> Iterator[LibraryCloud]:
    """A server of a cloud without instances."""

    class Handler(_Handler):
        lock = threading.Lock()

    Handler.cloud = cloud
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cloud.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield cloud
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class NamedDummyDriver(DummyNodeDriver):  # type: ignore[misc]  # it is untyped
    """The library's dummy driver, but that instances have the names and sizes that were asked for."""

    def __init__(self) -> None:
        super().__init__("0")

    def create_node(self, name: str, size: NodeSize, image: NodeImage) -> Node:
        made = super().create_node(name, size, image)
        made.id, made.name, made.size = f"{name}-{made.id}", name, size
        return made


def dummy_provider(
    cluster: str = "ours", driver: DummyNodeDriver | None = None, **config: object
) -> Provider:
    """A provider over one dummy driver."""
    shared = driver if driver is not None else DummyNodeDriver("0")
    settings = {"make": lambda _: shared}
    tools = ProviderTools(cluster, LoopClock(), Stream(1), Logger("test"), settings)
    given = {"driver": "dummy", "processors": {"1": 1, "2": 2}, **config}
    return create_provider("libcloud", given, tools)
