"""Prints the logs of a job's pods, each line after its role and index, while pods come and go."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import click
import msgspec

from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.status import ApiError, Expired, ServiceUnavailable
from grange.base import controls
from grange.base.tasks import Nursery
from grange.cli import job_lookup, job_view, log_stream, terminal, watched_object
from grange.cli.job_notices import JobNotices
from grange.cli.job_view import JobView
from grange.cli.session import ApiSession
from grange.cli.watched_object import WatchedObject

_COLORS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red")
_STARTED = frozenset({"Running", "Succeeded", "Failed"})
_RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class LogSelection:
    """Which pods, and what of their logs.

    Attributes:
        role: only this role; empty: all.
        index: only this index; empty: all.
        query: of the log request.
    """

    role: str = ""
    index: str = ""
    query: tuple[tuple[str, str], ...] = ()

    def includes(self, pod: Document) -> bool:
        """Whether the pod is selected."""
        role, index = job_view.member_of(pod)
        return (not self.role or role == self.role.lower()) and (
            not self.index or index == self.index
        )


class JobLogs:
    """The logs of one job.

    Args:
        opened: the session.
        job: the job.
        selection: which pods.
        is_json: print every line as an object.
    """

    def __init__(
        self, opened: ApiSession, job: JobView, selection: LogSelection, *, is_json: bool = False
    ) -> None:
        self._is_json = is_json
        self._opened = opened
        self._job = job
        self._selection = selection
        self._roles = [role.name.lower() for role in job.roles]
        self._open: set[tuple[str, int]] = set()  # UID and restarts of containers that are read
        self._lost = False

    async def print_once(self) -> int:
        """Print what there is, pod after pod; the exit code."""
        found = [
            pod for pod in await job_lookup.pods_of(self._opened, self._job) if self._selected(pod)
        ]
        if not found:
            terminal.echo("no matching pods have started", err=True)
            return 1
        for pod in found:
            await self._print(pod, follow=False)
        return 1 if self._lost else 0

    async def follow(self) -> JobView:
        """Print until the job has ended or is deleted; the job as it was seen last.

        Why it waits, and that it waits no more, is printed on standard error.
        """
        job, notices = self._job, JobNotices()
        subject = WatchedObject(self._opened, job.kind, job.name, job.namespace, pods=False)
        readers = Nursery("logs")
        async with Nursery("job") as nursery:
            for watch in subject.watches:
                nursery.start(watch())
            async with readers:
                pods = nursery.start(self._follow_pods(readers))
                while True:
                    await subject.changed(None)
                    if not subject.is_known:
                        continue
                    if subject.document is None:
                        break
                    job = job_view.view(subject.document)
                    if job.uid != self._job.uid or job.is_finished:
                        break
                    if line := notices.line(job):
                        terminal.echo(terminal.cell(line), err=True)
                pods.cancel()
                for pod in await job_lookup.pods_of(self._opened, self._job):
                    self._start(readers, pod)
            nursery.cancel()
        return job

    async def _follow_pods(self, readers: Nursery) -> None:
        query = {"labelSelector": job_view.pod_selector(self._job)}
        while True:
            try:
                async with aclosing(
                    watched_object.watched(self._opened, POD, self._job.namespace, query)
                ) as seen:
                    async for items in seen:
                        for pod in items.values():
                            self._start(readers, pod)
            except (Expired, ServiceUnavailable):
                pass  # the watch of the job goes on as well
            await self._opened.env.clock.sleep(_RETRY_S)

    def _start(self, readers: Nursery, pod: Document) -> None:
        key = (str(pod["metadata"]["uid"]), _restarts(pod))
        if key in self._open or not job_view.is_member(pod, self._job.uid):
            return
        if self._selected(pod):
            self._open.add(key)
            readers.start(self._print(pod, follow=True))

    def _selected(self, pod: Document) -> bool:
        return (pod.get("status") or {}).get("phase") in _STARTED and self._selection.includes(pod)

    async def _print(self, pod: Document, *, follow: bool) -> None:
        """Print one pod's log; what the server refuses for it does not end the others."""
        name, namespace = str(pod["metadata"]["name"]), self._job.namespace
        query = {**dict(self._selection.query), **({"follow": "true"} if follow else {})}
        emit = self._emitter(pod)
        try:
            async with aclosing(log_stream.lines(self._opened, namespace, name, query)) as found:
                async for lines in found:
                    emit(lines)
        except ApiError as error:
            self._lost = True
            terminal.echo(f"{name}: no log ({error.reason}): {error.message}", err=True)

    def _emitter(self, pod: Document) -> Callable[[Sequence[bytes]], None]:
        role, index = job_view.member_of(pod)
        if self._is_json:
            return _json_emitter({"role": role, "index": index, "pod": pod["metadata"]["name"]})
        prefix = f"{role}-{index}" if index else str(pod["metadata"]["name"])
        prefix = f"[{controls.escape(prefix, lines=False)}]"
        if self._opened.env.color:
            at = int(index) if index.isdecimal() else 0
            at += self._roles.index(role) if role in self._roles else 0
            prefix = click.style(prefix, fg=_COLORS[at % len(_COLORS)])
        start = f"{prefix} ".encode()

        def emit(lines: Sequence[bytes]) -> None:
            ends = (b"" if line.endswith(b"\n") else b"\n" for line in lines)
            terminal.write_bytes(start + line + end for line, end in zip(lines, ends, strict=True))

        return emit


def _json_emitter(member: Document) -> Callable[[Sequence[bytes]], None]:
    def emit(lines: Sequence[bytes]) -> None:
        texts = (line.removesuffix(b"\n").decode(errors="replace") for line in lines)
        terminal.write_bytes(
            msgspec.json.encode({**member, "line": text}) + b"\n" for text in texts
        )

    return emit


def _restarts(pod: Document) -> int:
    found = (pod.get("status") or {}).get("containerStatuses") or ()
    return sum(int(item.get("restartCount") or 0) for item in found)
