"""A verb's connection: kubeconfig, transport, client, and the kinds that the server serves."""

import difflib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from grange.api import alternatives, codec
from grange.api.http import Request, Response
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document, Resource
from grange.api.scheme import AnyKind, KindInfo, Scheme
from grange.api.status import BadRequest, NotFound, from_status
from grange.cli import manifests
from grange.cli.environment import Environment
from grange.cli.refused_objects import RefusedObjects
from grange.cli.server_warnings import ServerWarnings
from grange.client.access import Access
from grange.client.client import Client


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """Which cluster and namespace a verb talks to.

    Attributes:
        kubeconfig: a file given on the command line, before all others.
        context: a context given on the command line.
        namespace: a namespace given on the command line.
        all_namespaces: look in every namespace.
    """

    kubeconfig: Path | None = None
    context: str = ""
    namespace: str = ""
    all_namespaces: bool = False


class ApiSession:
    """An open connection.

    Attributes:
        client: the client.
        namespace: the namespace to use; empty means all.
        env: the environment of the process.
        access: how the cluster is reached; None where no kubeconfig was read.
    """

    def __init__(
        self, client: Client, namespace: str, env: Environment, access: Access | None = None
    ) -> None:
        self.client = client
        self.access = access
        self.namespace = namespace
        self.env = env
        self._scheme = Scheme(BUILT_IN)
        self._warnings = ServerWarnings(self.fetch)

    async def kind(self, word: str) -> AnyKind:
        """The kind that a word names.

        Raises:
            NotFound: neither built in nor served by this cluster.
        """
        found = self._scheme.named(word)
        if found is None:
            await self._discover()
            found = self._scheme.named(word)
        if found is None:
            what = f'the server has no resource type "{word}"'
            raise NotFound(f"{what}; {self._advice(word)}")
        return found

    async def kinds(self) -> list[AnyKind]:
        """The kinds that the cluster serves, the built-in ones first."""
        await self._discover()
        return list(self._scheme)

    async def expanded(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The same pairs, with the kinds of a category (``all``) that the cluster serves in its place.

        Args:
            pairs: as ``split_names`` gives them.
        """
        found: list[tuple[str, str]] = []
        for word, name in pairs:
            members: list[AnyKind] = []
            if not name and self._scheme.named(word) is None:
                members = (await self._discover()).get(word.lower(), [])
            found += [(kind.qualified, "") for kind in members] or [(word, name)]
        return found

    def _advice(self, word: str) -> str:
        """What to do about a kind that is not served: a substitute, names spelled alike, or all."""
        if advice := alternatives.advise_on_word(word):
            return advice
        names = {name: info.plural for info in self._scheme for name in _names(info)}
        near = difflib.get_close_matches(word.lower(), names)
        if near:
            meant = ", ".join(dict.fromkeys(names[name] for name in near))
            return f"did you mean {meant}?"
        kinds = ", ".join(sorted({info.plural for info in self._scheme}))
        if word == "all":  # a category: only ``get`` without ``-w`` expands those
            return f"join kinds by commas, for example pods,services; it has: {kinds}"
        return f"the name of an object comes after its kind, as in pod/{word}; it has: {kinds}"

    async def kind_of(self, document: Document) -> AnyKind:
        """The kind of a manifest.

        Raises:
            NotFound: the cluster does not serve it.
        """
        api_version, kind = str(document.get("apiVersion", "")), str(document.get("kind", ""))
        found = self._scheme.kind(api_version, kind)
        if found is None:
            await self._discover()
            found = self._scheme.kind(api_version, kind)
        if found is None:
            raise NotFound(
                f'the server does not serve kind "{kind}" in version "{api_version}"; '
                f"{self._instead(document)}"
            )
        return found

    def _instead(self, document: Document) -> str:
        """What to use instead of a manifest that is not served, with the manifest of it."""
        advice, manifest = alternatives.advise_on_document(self._scheme, document)
        if not advice:
            return self._spelled_alike(str(document.get("kind", "")))
        if manifest is None:
            return advice
        return f"{advice}:\n\n{manifests.alternative_yaml(manifest)}"

    def _spelled_alike(self, kind: str) -> str:
        """The kinds that may be meant, with their versions; where none is spelled alike, all."""
        versions: dict[str, list[str]] = {}
        for info in self._scheme:
            versions.setdefault(info.kind, []).append(info.api_version)
        lower = {name.lower(): name for name in versions}
        if near := difflib.get_close_matches(kind.lower(), lower):
            meant = (f"{lower[name]} ({', '.join(versions[lower[name]])})" for name in near)
            return f"did you mean {', '.join(meant)}?"
        return f"it serves: {', '.join(sorted(versions))}"

    async def fetch(self, request: Request) -> Response:
        """A whole response; the server's warnings are printed on standard error, each once.

        One about a feature of nodes is left out where every node has the feature.

        Raises:
            ApiError: the answer was not a success.
        """
        response = await self.client.raw(request)
        await self._warnings.show(response)
        if response.status >= 400:
            raise from_status(response.status, response.body)
        return response

    async def document(self, kind: AnyKind, name: str, namespace: str = "") -> Document:
        """A full object.

        Raises:
            ApiError: for instance ``NotFound``.
        """
        if not name:  # the path without it is that of the list
            raise BadRequest(f"{kind.qualified}: '' is not a name", kind=kind.plural)
        path = kind.path(self.within(kind, namespace), name)
        response = await self.fetch(Request("GET", path, headers={"accept": "application/json"}))
        return codec.decode_document(response.body)

    async def listed(
        self, kind: AnyKind, namespace: str | None = None, *, selector: str = "", fields: str = ""
    ) -> list[Document]:
        """The objects of a kind in full.

        Args:
            kind: the kind.
            namespace: where; the session's if None, all if empty.
            selector: only objects with these labels.
            fields: only objects with these fields.
        """
        query = {"labelSelector": selector, "fieldSelector": fields}
        request = Request(
            "GET",
            kind.path(self.namespace if namespace is None else namespace),
            query={key: value for key, value in query.items() if value},
            headers={"accept": "application/json"},
        )
        items = codec.decode_document((await self.fetch(request)).body).get("items") or []
        return [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in items]

    def within(self, kind: AnyKind, namespace: str = "") -> str:
        """The namespace for one object of the kind."""
        if not kind.namespaced:
            return ""
        return namespace or self.namespace or "default"

    async def targets(
        self,
        pairs: Sequence[tuple[str, str]],
        refusals: RefusedObjects,
        *,
        selector: str = "",
    ) -> list[tuple[AnyKind, str, str]]:
        """Kind, name and namespace of the objects that are meant.

        Args:
            pairs: as ``split_names`` gives them; a kind without a name means all of its objects.
            refusals: takes the lists that were refused.
            selector: for kinds without a name, only objects with these labels.

        Raises:
            ApiError: a kind is not served.
        """
        targets: list[tuple[AnyKind, str, str]] = []
        for kind, name in [(await self.kind(word), name) for word, name in pairs]:
            if name:
                targets.append((kind, name, self.within(kind)))
                continue
            with refusals.of_one():
                for item in await self.listed(kind, self.within(kind), selector=selector):
                    metadata = item["metadata"]
                    targets.append((kind, metadata["name"], metadata.get("namespace", "")))
        return targets

    async def _discover(self) -> dict[str, list[AnyKind]]:
        """Add the kinds of this cluster that are not built in; answers the kinds by category."""
        by_category: dict[str, list[AnyKind]] = {}
        groups = codec.decode_document(
            (await self.fetch(Request("GET", "/apis", headers={"accept": "application/json"}))).body
        )
        roots = ["/api/v1"] + [
            f"/apis/{item['preferredVersion']['groupVersion']}" for item in groups.get("groups", [])
        ]
        for root in roots:
            response = await self.fetch(
                Request("GET", root, headers={"accept": "application/json"})
            )
            listing = msgspec.json.decode(response.body, type=_ResourceList)
            group, _, version = listing.groupVersion.rpartition("/")
            for item in listing.resources:
                if "/" in item.name:
                    continue
                kind = self._scheme.resource(group, version, item.name)
                if kind is None:
                    kind = KindInfo(
                        group=group,
                        version=version,
                        kind=item.kind,
                        plural=item.name,
                        view=Resource,
                        schema="",
                        namespaced=item.namespaced,
                        short_names=tuple(item.shortNames),
                    )
                    self._scheme.add(kind)
                for category in item.categories:
                    by_category.setdefault(category, []).append(kind)
        return by_category


def _names(kind: AnyKind) -> tuple[str, ...]:
    return (kind.plural, kind.singular, *kind.short_names)


class _ApiResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool
    shortNames: list[str] = []  # noqa: N815  the wire's spelling
    categories: list[str] = []


class _ResourceList(msgspec.Struct):
    groupVersion: str  # noqa: N815  the wire's spelling
    resources: list[_ApiResource] = []


@asynccontextmanager
async def opened(env: Environment, target: ClusterTarget) -> AsyncIterator[ApiSession]:
    """Open a session for one verb and close it afterwards.

    Raises:
        KubeconfigError: no usable kubeconfig; the message names file and field.
    """
    chosen = env.access(target.kubeconfig, target.context)
    transport = env.connect(chosen, env.clock)
    client = Client(transport, strict=True)
    namespace = "" if target.all_namespaces else (target.namespace or chosen.namespace or "default")
    try:
        yield ApiSession(client, namespace, env, chosen)
    finally:
        await transport.close()


def run(
    env: Environment, target: ClusterTarget, verb: Callable[[ApiSession], Awaitable[int | None]]
) -> None:
    """Run a verb's coroutine in a session and leave with its exit code."""

    async def main() -> int:
        async with opened(env, target) as session:
            return await verb(session) or 0

    code = env.run(main())
    if code:
        raise click.exceptions.Exit(int(str(code)))


def split_names(words: Sequence[str]) -> list[tuple[str, str]]:
    """``pod a b``, ``pod/a grc/b`` and ``pods,nodes`` as (kind, name) pairs; name may be empty.

    Raises:
        click.UsageError: the two forms are mixed, or a part is empty.
    """
    if not words:
        raise click.UsageError("no object; write KIND, KIND NAME or KIND/NAME")
    if any("/" in word for word in words):
        if any("/" not in word for word in words):
            raise click.UsageError("mixed forms; write every argument as KIND/NAME")
        pairs = [(word.partition("/")[0], word.partition("/")[2]) for word in words]
        for word, (kind, name) in zip(words, pairs, strict=True):
            if not kind or not name:
                raise click.UsageError(f"{word}: a part is empty; write KIND/NAME")
        return pairs
    kinds, names = words[0].split(","), words[1:]
    if not all(kinds) or not all(names):  # an empty variable of a shell does not mean all objects
        raise click.UsageError("a kind or a name is empty; write KIND, KIND NAME or KIND/NAME")
    if names and len(kinds) > 1:
        raise click.UsageError("several kinds with names; write KIND/NAME for each object")
    return [(kinds[0], name) for name in names] if names else [(kind, "") for kind in kinds]
