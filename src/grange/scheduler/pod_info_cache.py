"""What pods that were made alike have in common, computed once for all of them.

Pods come by the thousand from one template and differ in their names alone. Reading their quantities,
compiling their selectors and numbering their signatures takes several times as long as finding out
that they are alike: the bytes of what all of that depends on are equal.
"""

from collections.abc import Callable

import msgspec

from grange.api.kinds.pod import Pod
from grange.api.meta import controller_of
from grange.base.bounded import BoundedDict
from grange.scheduler.nodeinfo import PodInfo

_MOST = 1024  # of some kilobytes each; a cluster with more templates computes some of them again

_encode = msgspec.json.Encoder().encode


class PodInfoCache:
    """Computes what is to be known of pods.

    Args:
        compute: a function of the pod's namespace, labels, controller and spec, apart from the pod's
            identity.

    Attributes:
        computed: how often it was called (a work counter).
    """

    def __init__(self, compute: Callable[[Pod], PodInfo]) -> None:
        self.computed = 0
        self._compute = compute
        self._known: BoundedDict[bytes, PodInfo] = BoundedDict(_MOST)

    def info(self, pod: Pod) -> PodInfo:
        """What ``compute`` gives for the pod; what it raises is raised for every pod alike."""
        meta = pod.metadata
        owner = controller_of(meta)
        key = _encode((meta.namespace, meta.labels, owner and owner.uid, pod.spec))
        alike = self._known.get(key)
        if alike is not None:
            return msgspec.structs.replace(alike, pod=pod, uid=meta.uid)
        self.computed += 1
        info = self._compute(pod)
        self._known[key] = info
        return info

    def clear(self) -> None:
        """Something else that ``compute`` depends on has changed."""
        self._known.clear()
