"""A real control plane in a context manager."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import uvloop

from grange.api import alternatives, codec
from grange.api.http import Request
from grange.api.kinds import BUILT_IN, NODE, POD
from grange.api.kinds.node import is_ready
from grange.api.meta import Document
from grange.api.scheme import AnyKind, Scheme
from grange.api.status import NotFound, Timeout
from grange.app.controlplane import ControlPlane
from grange.app.node_pools import PoolSize
from grange.app.settings import ListenAddress, Settings
from grange.base.clock import LoopClock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.plurals import counted
from grange.base.rng import Stream
from grange.cli import readiness, rollout_status
from grange.client.client import Client

T = TypeVar("T")

START_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0
_POLL_S = 0.01


class WaitFailed(GrangeError):
    """What was waited for cannot come about without a change; the message has the cause."""


class Cluster:
    """A running control plane, for tests that do not want to be asynchronous.

    Every method may be called from any thread; each raises the ``ApiError`` that the API answered.

    Attributes:
        url: where the API is served.
        kubeconfig: a file that any Kubernetes client can use.
        data_dir: everything that it keeps.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, plane: ControlPlane, client: Client
    ) -> None:
        self._loop = loop
        self._client = client
        self._scheme = Scheme(BUILT_IN)
        self.url = plane.url
        self.kubeconfig = plane.kubeconfig
        self.data_dir = plane.settings.data_dir

    def run(self, work: Callable[[Client], Awaitable[T]], *, timeout_s: float = 30.0) -> T:
        """Run asynchronous work with the control plane's own client and return its result.

        Raises:
            TimeoutError: it took longer than ``timeout_s`` seconds.
        """

        async def main() -> T:
            async with asyncio.timeout(timeout_s):
                return await work(self._client)

        return asyncio.run_coroutine_threadsafe(main(), self._loop).result()

    def kind(self, word: str) -> AnyKind:
        """The kind that ``pods``, ``pod``, ``po`` or ``Pod`` means.

        Raises:
            NotFound: none is called that.
        """
        found = self._scheme.named(word)
        if found is None:
            raise NotFound(f"no kind is called {word!r}")
        return found

    def create(self, manifest: str | Document | Sequence[Document]) -> list[Document]:
        """Create the objects of YAML text or documents and return them as stored."""
        documents = codec.load_yaml_documents(manifest) if isinstance(manifest, str) else manifest
        if isinstance(documents, dict):
            documents = [documents]
        created = []
        for document in documents:
            kind = self._scheme.kind(str(document["apiVersion"]), str(document["kind"]))
            if kind is None:
                advice, _ = alternatives.advise_on_document(self._scheme, document)
                what = f"no kind {document['kind']!r} in {document['apiVersion']!r}"
                raise NotFound(f"{what}; {advice}" if advice else what)
            name, namespace = self.run(_creating(kind, document))
            created.append(self.get(kind.plural, name, namespace))
        return created

    def get(self, kind: str, name: str, namespace: str = "default") -> Document:
        """One object in full."""
        info = self.kind(kind)
        within = namespace if info.namespaced else ""
        return self.run(lambda client: client.get_document(info, name, within))

    def list(self, kind: str, namespace: str = "default", *, labels: str = "") -> list[Document]:
        """Objects in full, by name; an empty namespace means all."""
        info = self.kind(kind)

        async def work(client: Client) -> list[Document]:
            within = namespace if info.namespaced else ""
            found = await client.list(info, within, labels=labels)
            keys = [(item.metadata.name, item.metadata.namespace) for item in found.items]
            return [await client.get_document(info, *key) for key in keys]

        return self.run(work)

    def patch(self, kind: str, name: str, patch: Document, namespace: str = "default") -> Document:
        """Merge a patch (RFC 7386) into an object and return the result."""
        info = self.kind(kind)
        within = namespace if info.namespaced else ""
        self.run(lambda client: client.patch(info, name, within, patch=patch))
        return self.get(kind, name, namespace)

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Ask for the object's deletion; ``wait_gone`` waits for it."""
        info = self.kind(kind)
        within = namespace if info.namespaced else ""
        self.run(lambda client: client.delete(info, name, within))

    def wait(
        self,
        kind: str,
        name: str,
        namespace: str = "default",
        *,
        until: Callable[[Document | None], bool] | None = None,
        timeout_s: float = 30.0,
    ) -> Document | None:
        """Wait until the object is ready, or until a condition of your own; return it.

        Ready means what it means to ``grange wait``: a changed ReplicationController is rolled out,
        and a container without a probe has run for two seconds.

        Args:
            kind: what it is.
            name: its name.
            namespace: where it is; ignored for cluster-scoped kinds.
            until: gets the document, or None while there is none.
            timeout_s: seconds after which to give up.

        Raises:
            Timeout: it did not come about; the message has the last state.
            WaitFailed: it never will without a change: a crash loop, or a rollout that failed; not
                with ``until``.
        """
        clock, info = LoopClock(), self.kind(kind)
        seen: list[Document | None] = [None]
        state = readiness.ready(None)

        def holds() -> bool:
            nonlocal state
            try:
                seen[0] = self.get(kind, name, namespace)
            except NotFound:
                seen[0] = None
            if until is not None:
                return until(seen[0])
            there = self._pods(rollout_status.pod_selector(info, name), namespace)
            state = rollout_status.rollout_status(seen[0], there, clock.now())
            return state.done or state.failed

        if not _poll(holds, timeout_s):
            text = state.text if until is None else readiness.ready(seen[0]).text
            raise Timeout(f"{kind}/{name} not as wished after {timeout_s:g} s: {text}")
        if state.failed:
            raise WaitFailed(f"{kind}/{name} failed: {state.text}")
        return seen[0]

    def _pods(self, selector: str, namespace: str) -> Sequence[Document]:
        if not selector:
            return ()
        query = {"labelSelector": selector}
        answer = self.run(
            lambda client: client.raw(Request("GET", POD.path(namespace), query=query))
        )
        items: Sequence[Document] = codec.decode_document(answer.body).get("items") or ()
        return items

    def wait_nodes(self, count: int, *, timeout_s: float = 30.0) -> None:
        """Wait until so many nodes are Ready.

        Raises:
            Timeout: they are not.
        """

        async def ready(client: Client) -> int:
            return sum(map(is_ready, (await client.list(NODE)).items))

        if not _poll(lambda: self.run(ready) >= count, timeout_s):
            raise Timeout(
                f"{counted(count, 'node was', 'nodes were')} not Ready after {timeout_s:g} s"
            )

    def wait_gone(
        self, kind: str, name: str, namespace: str = "default", *, timeout_s: float = 30.0
    ) -> None:
        """Wait until there is no such object.

        Raises:
            Timeout: it is still there.
        """
        self.wait(kind, name, namespace, until=lambda found: found is None, timeout_s=timeout_s)


def _creating(kind: AnyKind, document: Document) -> Callable[[Client], Awaitable[tuple[str, str]]]:
    async def work(client: Client) -> tuple[str, str]:
        namespace = document.get("metadata", {}).get("namespace") or "default"
        made = await client.create(kind, document, namespace if kind.namespaced else "")
        return made.metadata.name, made.metadata.namespace or "default"

    return work


def _poll(holds: Callable[[], bool], timeout_s: float) -> bool:
    clock = LoopClock()
    deadline = clock.monotonic() + timeout_s
    pause = threading.Event()
    while not holds():
        if clock.monotonic() > deadline:
            return False
        pause.wait(_POLL_S)
    return True


class _Thread(threading.Thread):
    """The control plane's thread: a loop, the plane, and a way to stop it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(name="grange-cluster")
        self._settings = settings
        self.ready = threading.Event()
        self.failure: BaseException | None = None
        self.plane: ControlPlane | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None

    def run(self) -> None:
        """Serve until asked to stop."""
        try:
            uvloop.run(self._serve())
        except BaseException as error:  # noqa: BLE001  handed to the test's thread
            self.failure = error
        finally:
            self.ready.set()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self.plane = ControlPlane(
            self._settings,
            clock=LoopClock(),
            rng=Stream.from_system(),
            log=Logger("testing"),
        )
        await self.plane.run(self.ready.set, self._end)

    def stop(self) -> None:
        """Stop serving and wait; what failed inside is raised here."""
        if self.loop is not None and self._end is not None and self.is_alive():
            self.loop.call_soon_threadsafe(self._end.set)
        self.join(STOP_LIMIT_S)
        if self.is_alive():
            raise TimeoutError(f"the control plane did not stop within {STOP_LIMIT_S:g} s")
        if self.failure is not None:
            raise self.failure


@contextmanager
def cluster(
    *,
    nodes: int = 1,
    data_dir: Path | None = None,
    disable: Sequence[str] = (),
    environment: dict[str, str] | None = None,
    pools: Mapping[str, int] | None = None,
) -> Iterator[Cluster]:
    """A real API server, scheduler, controllers and agents, for as long as the block lasts.

    The nodes are Ready when the block begins.

    Args:
        nodes: how many nodes to present this machine as.
        data_dir: where to keep things; a temporary directory by default, removed at the end.
        disable: roles not to run: scheduler, controllers, agent.
        environment: what pods find in their environment besides their own; PATH by default.
        pools: how many nodes each pool of whole machines has, for test sessions and leases; there
            are as many nodes as they need.

    Raises:
        GrangeError: it could not start; the message has the reason.
    """
    import os

    sizes = tuple(PoolSize(name, count) for name, count in (pools or {}).items())
    nodes = max(nodes, sum(size.nodes for size in sizes))
    directory = data_dir or Path(tempfile.mkdtemp(prefix="grange-test-"))
    thread = _Thread(
        Settings(
            data_dir=directory,
            listen=ListenAddress(port=0),
            nodes=nodes,
            pools=sizes,
            disable=frozenset(disable),
            environment=environment or {"PATH": os.environ.get("PATH", os.defpath)},
            isolation="none",  # tests have their files below /tmp
        )
    )
    thread.start()
    try:
        thread.ready.wait(START_LIMIT_S)
        if thread.failure is not None or thread.plane is None or thread.loop is None:
            thread.stop()
            raise TimeoutError(f"the control plane was not ready after {START_LIMIT_S:g} s")
        made = Cluster(thread.loop, thread.plane, thread.plane.client("testing"))
        if "agent" not in disable:
            made.wait_nodes(nodes, timeout_s=START_LIMIT_S)
        yield made
    finally:
        if thread.failure is None:
            thread.stop()
        if data_dir is None:
            shutil.rmtree(directory, ignore_errors=True)
