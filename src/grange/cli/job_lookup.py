"""Finds the jobs that a verb is about, their pods, and what is written about them."""

import click

from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import Forbidden, NotFound
from grange.cli import completers, job_view
from grange.cli.job_view import JobView
from grange.cli.session import ApiSession

NAME = click.argument("name", shell_complete=completers.objects)
NAMES = click.argument("names", nargs=-1, required=True, shell_complete=completers.objects)


async def find(opened: ApiSession, word: str) -> tuple[AnyKind, Document]:
    """The job that ``NAME`` or ``KIND/NAME`` means.

    Raises:
        NotFound: there is none.
        click.UsageError: the kind is not one of a job, or several kinds have one of the name.
    """
    prefix, slash, name = word.rpartition("/")
    if slash:
        kind = await opened.kind(prefix)
        if not job_view.is_job(kind):
            kinds = ", ".join(known.kind for known in job_view.KINDS)
            raise click.UsageError(f"{word}: {kind.kind} is not a job; the kinds are {kinds}")
        return kind, await opened.document(kind, name)
    found = []
    for kind in job_view.KINDS:
        try:
            found.append((kind, await opened.document(kind, name)))
        except (NotFound, Forbidden):  # also where a cluster does not serve the kind
            continue
    if not found:
        raise NotFound(f"job {name}: there is none of any kind; grange job list shows all")
    if len(found) > 1:
        labels = " or ".join(job_view.view(item).label for _, item in found)
        raise click.UsageError(f"{name}: several jobs have this name; write {labels}")
    return found[0]


async def seen(opened: ApiSession, word: str) -> JobView:
    """The job as it is shown; see ``find``."""
    return job_view.view((await find(opened, word))[1])


def no_role(job: JobView, role: str) -> click.UsageError:
    """The error about a role that a job does not have."""
    roles = ", ".join(item.name for item in job.roles)
    return click.UsageError(f"{job.label} has no role {role}; its roles are {roles}")


async def pods_of(opened: ApiSession, job: JobView) -> list[Document]:
    """The pods that the job controls, by role and index."""
    listed = await opened.listed(POD, job.namespace, selector=job_view.pod_selector(job))
    own = [item for item in listed if job_view.is_member(item, job.uid)]
    order = [role.name.lower() for role in job.roles]
    return sorted(own, key=lambda pod: job_view.position(pod, order))
