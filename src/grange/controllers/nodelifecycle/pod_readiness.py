"""The Ready condition of pods on nodes that are not: their agents cannot withdraw it themselves.

A Service leads to Ready pods, so it would lead to those of a dead machine until they are evicted. An agent
that comes back writes the condition as it finds it.
"""

from datetime import datetime

import msgspec

from grange.api import timestamps
from grange.api.kinds.pod import Pod, condition, is_finished
from grange.api.meta import Condition, Document, preconditions

_READY = "Ready"


def is_shown_ready(pod: Pod) -> bool:
    """Whether the pod is Ready by its status."""
    found = condition(pod, _READY)
    return found is not None and found.status == "True" and not is_finished(pod)


def withdrawal(pod: Pod, now: datetime) -> Document:
    """The strategic merge patch that sets Ready to False, if the pod still is as it was seen."""
    ready = Condition(
        type=_READY,
        status="False",
        reason="NodeNotReady",
        message="The node of the pod is not ready.",
        last_transition_time=timestamps.rfc3339(now),
    )
    return {
        "metadata": preconditions(pod.metadata),
        "status": {"conditions": [msgspec.to_builtins(ready)]},
    }
