"""Explains the pods that an object controls: which of them wait for what."""

from collections.abc import Sequence

from grange.api.explanation import Explanation, SchedulingState
from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.base.first_few import first_few
from grange.base.plurals import counted
from grange.cli import failures, readiness
from grange.cli.printers import explanation_text as printer
from grange.cli.session import ApiSession
from grange.cli.why import machine_attempts, pods

_ASKED = 20  # so many pods without a node are asked about; the others wait alike
_READ = 10  # the output of so many pods is read
_NAMED = 3

Answers = list[tuple[str, Explanation]]


async def explain(opened: ApiSession, document: Document) -> tuple[list[str], Answers]:
    """The causes of its pods that are not ready, and the scheduler's answers about them.

    Args:
        opened: the session.
        document: the object that controls the pods.
    """
    lines: list[str] = []
    waiting, others = await _unready(opened, document)
    answers = await _answers(opened, waiting[:_ASKED])
    by_name = {_name(item): item for item in waiting}
    for found in _alike(answers):
        name, first = found[0]
        attempts = await machine_attempts.look(opened, by_name[name])
        names = _some([each for each, _ in found])
        shown = attempts.applied(first)
        hint = [f"What to do: {shown.hint}."] if shown.hint else []
        subject = names if len(found) == 1 else f"{names}: each"
        lines += ["", f"{subject} {shown.summary}", *hint]
        lines += [*printer.obstacles(shown), *attempts.lines]
    if len(waiting) > _ASKED:
        left = counted(len(waiting) - _ASKED, "more pod")
        lines += ["", f"Not asked about: {left} without a node."]
    if others:
        lines += ["", "Not ready on their nodes:", *await causes(opened, others)]
    return lines, answers


async def _unready(opened: ApiSession, document: Document) -> tuple[list[Document], list[Document]]:
    """Its pods without a node, and those that are not ready where they are.

    Terminating pods are left out: nothing waits for them to become ready.
    """
    meta = document["metadata"]
    listed = await opened.listed(POD, meta.get("namespace") or "default")
    mine = [item for item in listed if _is_active(item, str(meta["uid"]))]
    pending = [item for item in mine if not readiness.ready(item).done]
    waiting = [item for item in pending if not item["spec"].get("nodeName")]
    return waiting, [item for item in pending if item["spec"].get("nodeName")]


def _is_active(item: Document, uid: str) -> bool:
    return not readiness.is_terminating(item) and _controlled(item, uid)


def _controlled(item: Document, uid: str) -> bool:
    owners = item["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == uid and owner.get("controller") for owner in owners)


async def _answers(opened: ApiSession, waiting: list[Document]) -> list[tuple[str, Explanation]]:
    found = []
    for item in waiting:
        name, within = _name(item), str(item["metadata"].get("namespace", ""))
        try:
            found.append((name, await pods.explanation(opened, POD, name, within)))
        except ApiError as error:
            found.append((name, Explanation(state=SchedulingState.UNSEEN, summary=error.message)))
    return found


def _alike(answers: list[tuple[str, Explanation]]) -> list[list[tuple[str, Explanation]]]:
    """Those that wait for the same reasons together."""
    groups: dict[object, list[tuple[str, Explanation]]] = {}
    for name, found in answers:
        key = (found.state, found.summary, found.reasons, found.changes)
        groups.setdefault(key, []).append((name, found))
    return [*groups.values()]


async def causes(opened: ApiSession, pods: Sequence[Document]) -> list[str]:
    """What keeps pods from being ready; the output of a few is read, the others end alike."""
    groups: dict[str, list[str]] = {}
    for at, item in enumerate(pods):
        text = await failures.describe(opened, item) if at < _READ else failures.summary(item)
        groups.setdefault(text, []).append(_name(item))
    return [f"  {_some(found)}  {text}" for text, found in groups.items()]


def some(pods: Sequence[Document]) -> str:
    """The names of a few pods, and how many more there are."""
    return _some([_name(item) for item in pods])


def _some(names: list[str]) -> str:
    return first_few([f"pod/{name}" for name in names], _NAMED)


def _name(item: Document) -> str:
    return str(item["metadata"]["name"])
