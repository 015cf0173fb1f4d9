"""Completions for shells: kinds and names of objects, as the cluster has them now.

The functions are what click takes as ``shell_complete``. A cluster that does not answer in time has
no completions, and no error is shown: there is no place for it on a half-written line.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import click

from grange.api import codec
from grange.api.http import METADATA_LIST, Request
from grange.api.kinds import BUILT_IN, NAMESPACE, POD
from grange.api.scheme import AnyKind, Scheme
from grange.base.errors import GrangeError
from grange.cli.environment import Environment
from grange.cli.session import ApiSession, ClusterTarget, opened

Completer = Callable[[click.Context, click.Parameter, str], list[str]]
T = TypeVar("T")

_LIMIT_S = 2.0
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_LIMIT = "500"  # a longer list does not help to choose


def objects(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Kinds for the first word, names after it; ``KIND/NAME`` in every place."""
    given: Sequence[str] = context.params.get(parameter.name or "") or ()
    word, slash, _ = incomplete.partition("/")
    if slash:
        return _beginning(incomplete, (f"{word}/{name}" for name in _names(context, word)))
    if not given or any("/" in item for item in given):
        return kinds(context, parameter, incomplete)
    names = (name for name in _names(context, given[0]) if name not in given[1:])
    return _beginning(incomplete, names)


def kinds(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The kinds that the cluster serves; the built-in ones where it does not answer.

    They are in the plural; short names come where no plural begins so.
    """

    async def served(session: ApiSession) -> Iterable[AnyKind]:
        return await session.kinds()

    found = _ask(context, served)
    known = list(found or Scheme(BUILT_IN))
    short = (name for info in known for name in info.short_names)
    return _beginning(incomplete, (info.plural for info in known)) or _beginning(incomplete, short)


def of_kind(kind: AnyKind) -> Completer:
    """A function that completes the names of the objects of one kind."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        word, slash, _ = incomplete.partition("/")
        prefix = f"{word}/" if slash else ""
        return _beginning(incomplete, (f"{prefix}{name}" for name in _names(context, kind.plural)))

    return complete


def pods(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of pods, and ``KIND/NAME`` of what has pods."""
    if "/" in incomplete:
        return objects(context, parameter, incomplete)
    return _beginning(incomplete, _names(context, POD.plural))


def containers(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the containers of the pod, or of the pods of the object, that the words before name."""
    # After an option that still lacks its value, click leaves arguments where they are.
    what = context.params.get("what") or next(iter(context.args), "")
    word, slash, name = str(what).rpartition("/")

    async def served(session: ApiSession) -> list[str]:
        found = await session.document(await session.kind(word) if slash else POD, name)
        spec = found.get("spec") or {}
        spec = (spec.get("template") or {}).get("spec") or spec
        return [str(item["name"]) for field in _CONTAINERS for item in spec.get(field) or ()]

    return _beginning(incomplete, _ask(context, served) or []) if name else []


namespaces = of_kind(NAMESPACE)


def contexts(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of the contexts of the kubeconfigs."""
    from grange.client import kubeconfig  # reads YAML, which takes its time

    env = context.find_object(Environment)
    if env is None:
        return []
    file = context.params.get("kubeconfig")
    try:
        names = kubeconfig.context_names((file,) if file else env.kubeconfig)
    except GrangeError:
        return []
    return _beginning(incomplete, names)


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


def _names(context: click.Context, word: str) -> list[str]:
    async def listed(session: ApiSession) -> list[str]:
        kind = await session.kind(word)
        path = kind.path(session.within(kind) if session.namespace else "")
        request = Request("GET", path, query={"limit": _LIMIT}, headers={"accept": METADATA_LIST})
        items = codec.decode_document((await session.fetch(request)).body).get("items") or []
        return [str(item["metadata"]["name"]) for item in items]

    return _ask(context, listed) or []


def _ask(context: click.Context, question: Callable[[ApiSession], Awaitable[T]]) -> T | None:
    """The answer of the cluster that the words before name; None where there is none in time."""
    env = context.find_object(Environment)
    if env is None:
        return None
    target = ClusterTarget(
        kubeconfig=context.params.get("kubeconfig"),
        context=context.params.get("context") or "",
        namespace=context.params.get("namespace") or "",
        all_namespaces=bool(context.params.get("all_namespaces")),
    )
    answers: list[T] = []

    async def ask() -> None:
        async with env.clock.timeout(_LIMIT_S), opened(env, target) as session:
            answers.append(await question(session))

    try:
        env.run(ask())
    except (GrangeError, OSError):  # TimeoutError is an OSError
        return None
    return answers[0]
