"""What the documents of a job's objects are made from."""

from dataclasses import dataclass, field

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
        encoded: what the framework encodes once for all members.
    """

    model: JobModel
    labels: JobLabels
    owner: OwnerReference
    peers: Peers
    encoded: dict[str, bytes] = field(default_factory=dict, compare=False)
