"""What is printed on standard error while the logs of a job are followed: its phase, whenever it changes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from grange.api.job_status import CREATED, RUNNING
from grange.cli import terminal
from grange.cli.job_view import JobView


class JobNotices:
    """The lines for one job, each once; a job that runs from the start has none."""

    def __init__(self) -> None:
        self._last = ("", "")

    def line(self, job: JobView) -> str:
        """The line for what the job is now; empty where there is nothing new, or it has ended."""
        news = (job.phase, "" if job.phase == RUNNING else job.message)
        if job.is_finished or job.phase in {"", CREATED} or news == self._last:
            return ""
        was, self._last = self._last[0], news
        if job.phase == RUNNING:
            return f"{job.label} is running" if was else ""
        text = f": {job.message}" if job.message else ""
        return f"{job.label} is {job.phase.lower()}{text}"


@contextmanager
def left_running(job: JobView, namespace: str) -> Iterator[None]:
    """Where Ctrl-C ends the verb, print that the job goes on, and how to delete it.

    Args:
        job: the job.
        namespace: that a verb uses without ``-n``.
    """
    try:
        yield
    except asyncio.CancelledError:
        option = "" if job.namespace == namespace else f" -n {job.namespace}"
        terminal.echo(
            f"{job.label} goes on; to delete it: grange delete {job.label}{option}", err=True
        )
        raise
