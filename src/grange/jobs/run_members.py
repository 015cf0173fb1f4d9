"""The members of a job that a program runs: which pods they are, what they leave and print."""

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from grange.api.fields import lookup
from grange.api.kinds import POD
from grange.api.kinds.gangjob import GangJob
from grange.api.kinds.pod import ContainerStateTerminated, Pod
from grange.api.status import BadRequest, NotFound
from grange.client.client import Client, LogOptions
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.jobs.job_options import FUNCTION
from grange.jobs.run_errors import ResultUnavailable
from grange.reconcile.owners import is_controlled_by

_STARTED = frozenset({"Running", "Succeeded", "Failed"})
_ADVICE = "write it to a file or a volume"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one member.

    Attributes:
        role: of the member.
        index: of the member.
        text: without its end.
    """

    role: str
    index: int
    text: str

    def __str__(self) -> str:
        return f"[{self.role}-{self.index}] {self.text}"


class RunMembers:
    """The pods of one job.

    Args:
        client: the connection.
        job: as it was created or read.

    Attributes:
        selector: of labels; pods that another job of the same name left have them, too.
    """

    def __init__(self, client: Client, job: GangJob) -> None:
        self._client = client
        self._job = job
        self._labels = GANGJOB_ADAPTER.labels
        self.selector = f"{self._labels.job}={job.metadata.name}"

    async def list(self) -> Sequence[Pod]:
        """The pods that the job controls, by role and index."""
        namespace = self._job.metadata.namespace
        listing = await self._client.list(POD, namespace, labels=self.selector)
        return self.own(listing.items)

    def own(self, pods: Iterable[Pod]) -> Sequence[Pod]:
        """Those that the job controls, by role and index."""
        order = [name.lower() for name in self._job.spec.replica_specs]

        def place(pod: Pod) -> tuple[int, int]:
            role, index = self.of(pod)
            return order.index(role) if role in order else len(order), index

        return sorted((pod for pod in pods if is_controlled_by(pod, self._job)), key=place)

    def of(self, pod: Pod) -> tuple[str, int]:
        """Role in lower case and index of a pod."""
        labels = pod.metadata.labels
        index = labels.get(self._labels.index, "")
        return labels.get(self._labels.role, ""), int(index) if index.isdecimal() else -1

    def value(self, role: str, index: int, pods: Sequence[Pod]) -> Any:
        """What the function returned in a member; None for a command.

        Raises:
            ResultUnavailable: nothing that can be read.
        """
        notes = lookup(self._job.spec.replica_specs[role].template, "metadata.annotations")
        if FUNCTION not in (notes or {}):
            return None
        label = f"result of {role} {index} of job {self._job.metadata.name}"
        mine = (pod for pod in pods if self.of(pod) == (role.lower(), index))
        ended = next((end for pod in mine if (end := terminated(pod)) and not end.exit_code), None)
        if ended is None:
            raise ResultUnavailable(f"{label}: its pod is gone; {_ADVICE}")
        try:
            left = json.loads(ended.message.splitlines()[-1])
            if "value" in left:
                return left["value"]
            reason = str(left["unavailable"])
        except (ValueError, LookupError, TypeError):
            reason = "its pod has no termination message that holds one"
        raise ResultUnavailable(f"{label}: {reason}; {_ADVICE}")

    def failure(self, pods: Sequence[Pod]) -> tuple[str, str]:
        """The first member that failed, and what it left; empty for nothing."""
        for pod in pods:
            ended = terminated(pod)
            if ended is not None and ended.exit_code and ended.message.strip():
                role, index = self.of(pod)
                return f"{role}-{index}", ended.message.strip()
        return "", ""

    async def lines(self, pod: Pod, *, follow: bool = False) -> AsyncGenerator[LogLine, None]:
        """The log of one pod; none where it is gone or has not started after all."""
        meta, (role, index) = pod.metadata, self.of(pod)
        options = LogOptions(container=pod.spec.containers[0].name, follow=follow)
        pieces = self._client.logs(meta.name, meta.namespace, options=options)
        rest = b""
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    *whole, rest = (rest + piece).split(b"\n")
                    for line in whole:
                        yield LogLine(role, index, line.decode(errors="replace"))
        except (NotFound, BadRequest):
            return
        if rest:
            yield LogLine(role, index, rest.decode(errors="replace"))

    def is_selected(self, pod: Pod, role: str, index: int | None) -> bool:
        """Whether the pod has a log, and is of the role and index where they are given."""
        mine = self.of(pod)
        return (
            pod.status.phase in _STARTED
            and role.lower() in ("", mine[0])
            and index in (None, mine[1])
        )


def terminated(pod: Pod) -> ContainerStateTerminated | None:
    """How the first container ended; None while it has not."""
    found = pod.status.container_statuses
    return found[0].state.terminated if found else None
