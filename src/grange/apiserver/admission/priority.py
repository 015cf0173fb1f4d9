"""A pod's priority comes from its class: a number in the spec does not raise it.

Classes are read from the newest *accepted* state, so a class counts from the moment its write is
taken in. Which classes may be the default is remembered from their writes, all of which pass here;
whether one of them still is, is read again whenever a pod without a class comes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from grange.api.kinds.podgroup import GROUP_LABEL, PODGROUP, PodGroup
from grange.api.kinds.priorityclass import PREEMPT, SYSTEM, PriorityClass
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import Forbidden
from grange.apiserver.admission import Attributes
from grange.base.bounded import BoundedDict
from grange.store.interface import Store

_GROUP = "scheduling.k8s.io"
_PREFIX = f"/{_GROUP}/priorityclasses/"
_REMEMBERED_MAX = 4096

_decoder = msgspec.json.Decoder(PriorityClass)
_groups = msgspec.json.Decoder(PodGroup)


@dataclass(frozen=True, slots=True)
class _Rank:
    name: str
    value: int
    policy: str

    def apply(self, spec: Document) -> None:
        """Set the fields that the class decides."""
        if self.name:
            spec["priorityClassName"] = self.name
        spec["priority"] = self.value
        spec["preemptionPolicy"] = self.policy


_PLAIN = _Rank("", 0, PREEMPT)


class Priority:
    """The rule.

    Args:
        store: where classes are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: BoundedDict[str, tuple[int, PriorityClass]] = BoundedDict(
            _REMEMBERED_MAX
        )  # name → revision and class
        self._defaults: dict[str, None] = {}  # names that were the default once

    async def load(self, skip: Callable[[str, int, Exception], object]) -> None:
        """Find the classes that are there already; once, before the first write.

        Args:
            skip: called with key, revision and error of a class that cannot be read; it is none.

        Raises:
            StoreError: the store cannot be read.
        """
        for entry in (await self._store.list(_PREFIX)).entries:
            try:
                default = _decoder.decode(entry.value).global_default
            except msgspec.MsgspecError as error:
                skip(entry.key, entry.revision, error)
                continue
            if default:
                self._defaults[entry.key.removeprefix(_PREFIX)] = None

    def admit(self, attempt: Attributes) -> _Rank | None:
        """Find a new pod's priority; check which class is the default.

        Raises:
            Forbidden: no such class, the pod names a different priority, there is another default
                already, or the class is one that the system needs.
        """
        document = attempt.document
        if document is None:
            if (
                attempt.verb == "delete"
                and attempt.name in SYSTEM
                and _is(attempt.info, _GROUP, "priorityclasses")
            ):
                raise _refused(attempt.name, "it belongs to the system and may not be deleted")
        elif _is(attempt.info, "", "pods"):
            spec = document.get("spec")
            if attempt.verb == "create" and isinstance(spec, dict):
                name = spec.get("priorityClassName")
                if not name:
                    name = self._group_class(attempt.namespace, document) or name
                return self._rank(attempt.name, spec, name)
        elif _is(attempt.info, PODGROUP.group, PODGROUP.plural):
            self._check_group(attempt.name, document)
        elif _is(attempt.info, _GROUP, "priorityclasses"):
            self._note(attempt.name, document)
        return None

    def _note(self, name: str, document: Document) -> None:
        if document.get("globalDefault") is not True:
            return
        for other in self._current():
            if other.name != name:
                why = f"{other.name} is the default already; take globalDefault from it first"
                raise _refused(name, why)
        self._defaults[name] = None

    def _group_class(self, namespace: str, document: Document) -> str:
        """The class of a pod's group, which a pod that names none takes; empty if there is none."""
        labels = (document.get("metadata") or {}).get("labels")
        group = labels.get(GROUP_LABEL) if isinstance(labels, dict) else None
        if not group or not isinstance(group, str):
            return ""
        entry = self._store.latest(f"/{PODGROUP.group}/{PODGROUP.plural}/{namespace}/{group}")
        if entry is None:
            return ""
        try:
            return _groups.decode(entry.value).spec.priority_class_name
        except msgspec.MsgspecError:
            return ""

    def _check_group(self, group: str, document: Document) -> None:
        spec = document.get("spec")
        name = spec.get("priorityClassName") if isinstance(spec, dict) else None
        if name and isinstance(name, str) and self._class(name) is None:
            raise Forbidden(
                f'{PODGROUP.qualified} "{group}" is forbidden: no PriorityClass with name {name} '
                "was found; create it first",
                kind=PODGROUP.plural,
                group=PODGROUP.group,
                name=group,
            )

    def _rank(self, pod: str, spec: Document, name: object) -> _Rank | None:
        if name is not None and not isinstance(name, str):
            return None  # its schema has a word on that
        rank = self._named(pod, name) if name else next(iter(self._current()), _PLAIN)
        for field, right in (("priority", rank.value), ("preemptionPolicy", rank.policy)):
            given = spec.get(field)
            if given is not None and given != right:
                source = f"class {rank.name}" if rank.name else "the absence of a class"
                raise _forbidden(
                    pod,
                    f"spec.{field} is {right} by {source}, and may not be given as {given}; "
                    "name a PriorityClass in spec.priorityClassName instead",
                )
        return rank

    def _named(self, pod: str, name: str) -> _Rank:
        found = self._class(name)
        if found is None:
            raise _forbidden(pod, f"no PriorityClass with name {name} was found; create it first")
        return _Rank(name, found.value, found.preemption_policy)

    def _current(self) -> list[_Rank]:
        """The classes that are the default now: one, or none."""
        if not self._defaults:
            return []
        found = []
        for name in [*self._defaults]:
            held = self._class(name)
            if held is None or not held.global_default:
                del self._defaults[name]
            else:
                found.append(_Rank(name, held.value, held.preemption_policy))
        return found

    def _class(self, name: str) -> PriorityClass | None:
        entry = self._store.latest(_PREFIX + name)
        if entry is None:
            self._read.pop(name, None)
            return None
        known = self._read.get(name)
        if known is None or known[0] != entry.revision:
            try:
                decoded = _decoder.decode(entry.value)
            except msgspec.MsgspecError:
                return None  # what cannot be read is no class; it was logged at the start
            known = self._read[name] = (entry.revision, decoded)
        return known[1]


def _is(info: AnyKind, group: str, plural: str) -> bool:
    return info.plural == plural and info.group == group


def _forbidden(pod: str, why: str) -> Forbidden:
    return Forbidden(f'pods "{pod}" is forbidden: {why}', kind="pods", name=pod)


def _refused(name: str, why: str) -> Forbidden:
    return Forbidden(
        f'priorityclasses.{_GROUP} "{name}" is forbidden: {why}',
        kind="priorityclasses",
        group=_GROUP,
        name=name,
    )
