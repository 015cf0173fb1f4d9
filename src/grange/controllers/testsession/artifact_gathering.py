"""Copies artifacts from the directories of pods that this process can read. Everything here blocks."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from grange.controllers.testsession.component_pods import ComponentPod
from grange.evidence import artifact_scan
from grange.evidence.artifact_scan import FoundFile
from grange.evidence.artifact_store import ArtifactStore, ArtifactTooLarge
from grange.evidence.evidence_paths import EvidencePathError
from grange.evidence.session_record import KeptFile

_CHUNK = 1024 * 1024
_EVERYTHING = ("**",)


class ArtifactSource(Protocol):
    """Where the artifacts of pods are."""

    def directory(self, pod_uid: str) -> Path | None:
        """The directory that the pod's containers write to; None where it is on another machine."""


def patterns_of(pod: ComponentPod) -> tuple[str, ...]:
    """What is kept of a pod: what its component names, or everything."""
    return pod.spec.artifacts or _EVERYTHING


def found_in(directory: Path, pod: ComponentPod, result: str) -> list[FoundFile]:
    """The artifacts of a pod, with the driver's result."""
    patterns = (*patterns_of(pod), result) if pod.is_driver and result else patterns_of(pod)
    return [*artifact_scan.find(directory, patterns)]


def missing(pod: ComponentPod, found: list[FoundFile]) -> Iterator[str]:
    """A message for each pattern that no file matches."""
    for pattern in pod.spec.artifacts:
        if not any(artifact_scan.is_match(file.path, pattern) for file in found):
            yield f"{pod.member}: no artifact matches {pattern!r}"


def copy(
    store: ArtifactStore,
    attempt: int,
    pod: ComponentPod,
    directory: Path,
    file: FoundFile,
    limit: int,
) -> str:
    """Keep one artifact; a message where it is not kept, empty where it is.

    Raises:
        ArtifactError: the directory of evidence cannot be written.
    """
    where = f"{pod.member}: artifact {file.path!r}"
    if file.refusal:
        store.skip(attempt, pod.member, KeptFile(file.path, file.size, file.refusal))
        return f"{where} is not kept: {file.refusal}"
    try:
        descriptor = artifact_scan.open_beneath(directory, file.path)
        with os.fdopen(descriptor, "rb", buffering=0) as source:
            size = os.fstat(source.fileno()).st_size
            with store.open(attempt, pod.member, file.path, limit=limit, size=size) as target:
                while piece := source.read(_CHUNK):
                    target.write(piece)
                target.commit()
    except (ArtifactTooLarge, EvidencePathError) as error:
        return f"{pod.member}: {error}"
    except OSError as error:  # of reading: those of writing are an ArtifactError
        why = error.strerror or str(error)
        store.skip(attempt, pod.member, KeptFile(file.path, file.size, why))
        return f"{where} is not kept: {why}"
    return ""
