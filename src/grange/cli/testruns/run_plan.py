"""What a run of tests consists of: the sessions of all manifests and cells, named and in queues."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec

from grange.api import codec, names
from grange.api.kinds import TESTSESSION
from grange.api.kinds.testsession import TestSession, components, pod_names
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.cli.testruns import cell_matrix, parameters
from grange.cli.testruns.cell_matrix import CellMatrix

RUN_LABEL = "grange.dev/test-run"
"""Label of the sessions that one command created."""

PARAMETERS_ANNOTATION = "grange.dev/test-parameters"
"""Annotation of a session: the parameters of its cell, as JSON."""

QUEUE_ANNOTATION = "pool"
"""Annotation of a manifest: the queue of the runner that it belongs to."""

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SUFFIX = 6  # a dash and the suffix
_USUAL_TTL_S = 7 * 24 * 3600
_LEAST_TTL_S = 3600  # those who wait for the session have seen its end by then


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What the command line adds to the manifests.

    Attributes:
        values: parameters of all sessions, by path or name.
        axes: options ``KEY=A,B`` of the matrix.
        fail_fast: the first bad end ends all sessions.
        name: of the only session; empty: the manifest's with a suffix.
        keep: sessions are not deleted when their evidence expires.
        queue_annotation: whose value is the queue.
        run: identifies the run.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    axes: Sequence[str] = ()
    fail_fast: bool = False
    name: str = ""
    keep: bool = False
    queue_annotation: str = QUEUE_ANNOTATION
    run: str = ""


@dataclass(frozen=True, slots=True)
class PlannedSession:
    """A session to run.

    Attributes:
        test: the name by which its runs are known, stable from run to run.
        queue: of the runner; empty for the common one.
        document: to create; its name is the only one that it will ever have.
        parameters: of its cell.
        group: sessions of one group are ended together by ``fail_fast``.
        fail_fast: a bad end of it ends its group.
    """

    test: str
    queue: str
    document: Document
    parameters: Mapping[str, Any]
    group: int
    fail_fast: bool

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.document["metadata"]["name"])


def is_session(document: Document) -> bool:
    """Whether the document is a TestSession."""
    group, _, _ = str(document.get("apiVersion", "")).partition("/")
    return group == TESTSESSION.group and document.get("kind") == TESTSESSION.kind


def plan(documents: Sequence[Document], settings: PlanSettings) -> list[PlannedSession]:
    """The sessions of the manifests, cell by cell, in their order.

    Raises:
        click.UsageError: there is none, a matrix or a path is wrong, or a parameter has no value or
            no place.
    """
    planned: list[PlannedSession] = []
    used: set[str] = set()
    for group, document in enumerate(filter(is_session, documents)):
        found, keys = _cells(document, group, settings)
        planned += found
        used |= keys
    if not planned:
        raise click.UsageError("the manifests hold no TestSession")
    if unused := [key for key in settings.values if key not in used]:
        raise click.UsageError(
            f"--set {unused[0]}: no manifest has ${{{{ {unused[0]} }}}}; write it there, or give "
            f"a path, for example spec.driver.env[{unused[0]}]"
        )
    if settings.name and len(planned) > 1:
        raise click.UsageError(f"--name names one session, and there are {len(planned)}")
    if double := [name for name, count in Counter(p.name for p in planned).items() if count > 1]:
        raise click.UsageError(f"{double[0]}: two manifests have this name; rename one")
    return planned


def fresh(documents: Sequence[Document]) -> list[Document]:
    """Manifests of sessions as they were read, to run them again."""
    found = []
    counts: Counter[str] = Counter()
    for document in documents:
        meta, spec = document["metadata"], codec.clone(document["spec"])
        labels, notes = dict(meta.get("labels") or {}), dict(meta.get("annotations") or {})
        base = str(meta["name"]).removesuffix(f"-{labels.pop(RUN_LABEL, '')}")
        if prefix := str(meta.get("generateName") or ""):
            base = prefix.rstrip("-")
        counts[base] += 1
        spec.pop("cancel", None)
        notes.pop(_APPLIED, None)
        made = {"name": base if counts[base] == 1 else f"{base}-r{counts[base]}"}
        found.append(
            {
                "apiVersion": TESTSESSION.api_version,
                "kind": TESTSESSION.kind,
                "metadata": {
                    **made,
                    "namespace": meta.get("namespace") or "",
                    "labels": labels,
                    "annotations": notes,
                },
                "spec": spec,
            }
        )
    return found


def _cells(
    document: Document, group: int, settings: PlanSettings
) -> tuple[list[PlannedSession], set[str]]:
    notes = (document.get("metadata") or {}).get("annotations") or {}
    text = notes.get(cell_matrix.ANNOTATION)
    matrix = cell_matrix.parse(str(text)) if text else CellMatrix()
    matrix = cell_matrix.extended(matrix, settings.axes)
    found = cell_matrix.cells(matrix)
    labels = cell_labels(found)
    planned: list[PlannedSession] = []
    used: set[str] = set()
    for cell, label in zip(found, labels, strict=True):
        values = {**settings.values, **cell}
        made, keys = parameters.applied(document, values)
        used |= keys
        if lost := [key for key in cell if key not in keys]:
            raise click.UsageError(
                f"matrix: {lost[0]}: no ${{{{ {lost[0]} }}}} in the manifest; write it there, or "
                f"give a path, for example spec.driver.env[{lost[0]}]"
            )
        if open_ := parameters.missing(made):
            raise click.UsageError(
                f"${{{{ {open_[0]} }}}} has no value; give --set {open_[0]}=VALUE"
            )
        for index in range(matrix.repeat):
            again = f"r{index + 1}" if matrix.repeat > 1 else ""
            planned.append(
                _session(codec.clone(made), cell, (label, again), group, matrix, settings)
            )
    return planned, used


def cell_labels(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """A readable name for each cell, unique among them and the same in every run."""
    texts = ["-".join(map(_slug, cell.values())) for cell in found]
    counts = Counter(texts)
    return [
        text if counts[text] == 1 and text else _hashed(text, cell) if cell else ""
        for text, cell in zip(texts, found, strict=True)
    ]


def _session(
    document: Document,
    cell: Mapping[str, Any],
    label: tuple[str, str],
    group: int,
    matrix: CellMatrix,
    settings: PlanSettings,
) -> PlannedSession:
    meta, spec = document.setdefault("metadata", {}), document.setdefault("spec", {})
    base = str(meta.get("name") or str(meta.get("generateName") or "test").rstrip("-"))
    test = "-".join(filter(None, (str(spec.get("testName") or base), label[0])))
    spec["testName"] = test = fitted(test, names.DNS_LABEL_MAX)
    room = names.DNS_LABEL_MAX - _SUFFIX - _longest_component(document)
    stem = fitted("-".join(filter(None, (base, *label))), room)
    meta.pop("generateName", None)
    meta["name"] = settings.name or f"{stem}-{settings.run}"
    meta["labels"] = {**(meta.get("labels") or {}), RUN_LABEL: settings.run}
    notes = {**(meta.get("annotations") or {})}
    notes.pop(cell_matrix.ANNOTATION, None)
    shown = {**_known(notes), **settings.values, **cell}
    if shown:
        notes[PARAMETERS_ANNOTATION] = msgspec.json.encode(shown).decode()
    meta["annotations"] = notes
    if not settings.keep and spec.get("ttlSecondsAfterFinished") is None:
        kept = (spec.get("evidence") or {}).get("retentionSeconds", _USUAL_TTL_S)
        spec["ttlSecondsAfterFinished"] = max(kept, _LEAST_TTL_S)
    return PlannedSession(
        test="-".join(filter(None, (test, label[1]))),
        queue=str(notes.get(settings.queue_annotation) or ""),
        document=document,
        parameters=shown,
        group=-1 if settings.fail_fast else group,
        fail_fast=settings.fail_fast or matrix.fail_fast,
    )


def _known(notes: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the session that is run again; empty for a manifest."""
    try:
        return msgspec.json.decode(str(notes.get(PARAMETERS_ANNOTATION) or "{}"), type=dict)
    except msgspec.MsgspecError:  # it is written by anyone who may write sessions
        return {}


def fitted(text: str, room: int) -> str:
    """The text where it has room, else as much of it as there is room for, with its hash."""
    if len(text) <= room:
        return text
    code = names.digest(text)
    return f"{text[: max(1, room - len(code) - 1)].rstrip('-')}-{code}"


def _longest_component(document: Document) -> int:
    """How much longer than the session's name the longest name of a pod is."""
    try:
        session = codec.convert(document, TestSession)
        return max(
            (
                len(pod_names("", name, item.count)[-1])
                for _, name, item in components(session.spec)
            ),
            default=0,
        )
    except ApiError:  # the server explains what is wrong with it
        return 0


def _slug(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in text.lower())
    return "-".join(filter(None, plain.split("-"))) or "x"


def _hashed(text: str, cell: Mapping[str, Any]) -> str:
    code = names.digest(msgspec.json.encode(cell, order="sorted").decode())
    return f"{text}-{code}".lstrip("-")
