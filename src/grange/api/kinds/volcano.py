"""PodGroup of Volcano, which this server does not serve: clusters that run Volcano have it."""

import msgspec

from grange.api.meta import Condition, Resource, View
from grange.api.scheme import KindInfo

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
"""Annotation of the pods: the name of their group."""

TASK_ANNOTATION = "volcano.sh/task-spec"
"""Annotation of the pods: the part of the group that they are."""


class VolcanoPodGroupSpec(View, frozen=True):
    """What is wanted; see ``PodGroupSpec``.

    Attributes:
        min_task_member: so many members of each named part are needed, too.
    """

    min_member: int = 0
    min_task_member: dict[str, int] = msgspec.field(default_factory=dict)
    min_resources: dict[str, int | float | str] = msgspec.field(default_factory=dict)
    queue: str = ""
    priority_class_name: str = ""


class VolcanoPodGroupStatus(View, frozen=True):
    """What is: ``Pending`` until the queue admits the group."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class VolcanoPodGroup(Resource, frozen=True):
    """A gang of Volcano's."""

    spec: VolcanoPodGroupSpec = msgspec.field(default_factory=VolcanoPodGroupSpec)
    status: VolcanoPodGroupStatus = msgspec.field(default_factory=VolcanoPodGroupStatus)


VOLCANO_PODGROUP = KindInfo(
    group="scheduling.volcano.sh",
    version="v1beta1",
    kind="PodGroup",
    plural="podgroups",
    view=VolcanoPodGroup,
    schema="sh.volcano.scheduling.v1beta1.PodGroup",
)
