"""What the documents of a job's objects are made from."""

from dataclasses import dataclass

from grange.api.meta import OwnerReference
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.model import JobModel
from grange.controllers.gangjob.peers import Peers


@dataclass(frozen=True, slots=True)
class JobContext:
    """A job in its surroundings.

    Attributes:
        model: the job, with what its framework fills in (``frameworks.completed``).
        labels: keys of the labels of its objects.
        owner: reference to the job.
        peers: where its members are.
    """

    model: JobModel
    labels: JobLabels
    owner: OwnerReference
    peers: Peers
