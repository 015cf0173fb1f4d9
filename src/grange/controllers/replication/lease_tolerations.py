"""Pods on leased machines: a pod that is pinned to one carries the UID of the lease, as a holder's pods do.

With it the pod fits no other machine, and the machine goes to others only when the pod is gone.
"""

from dataclasses import dataclass

import msgspec

from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document
from grange.reconcile.held_leases import HeldLeases


@dataclass(frozen=True, slots=True)
class LeaseTolerations:
    """What the leases of controllers mean for their pods.

    Attributes:
        held: leases by holder; None where there is no pool of machines.
    """

    held: HeldLeases | None = None

    def tolerating(self, controller: ReplicationController) -> ReplicationController:
        """The controller with a template that tolerates the taints of its leases."""
        leases = self._leases(controller)
        if not leases:
            return controller
        template = dict(controller.spec.template)
        spec = dict(template.get("spec") or {})
        spec["tolerations"] = [
            *(spec.get("tolerations") or []),
            *map(_toleration, dict.fromkeys(leases.values())),
        ]
        template["spec"] = spec
        return msgspec.structs.replace(
            controller, spec=msgspec.structs.replace(controller.spec, template=template)
        )

    def admit(self, controller: ReplicationController, pod: Document, node: str) -> None:
        """Let a new pod onto leased machines of its controller, in place.

        Args:
            controller: whose pod it is.
            pod: to be created.
            node: where it is pinned; empty where the scheduler chooses: it may choose any of them then.
        """
        leases = self._leases(controller)
        if node:
            leases = {node: leases[node]} if node in leases else {}
        if not leases:
            return
        spec = pod["spec"]
        spec["tolerations"] = [
            *(spec.get("tolerations") or []),
            *map(_toleration, dict.fromkeys(leases.values())),
        ]
        if node:
            pod["metadata"]["labels"][MACHINE_LEASE] = leases[node]
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), MACHINE_LEASE: leases[node]}

    def _leases(self, controller: ReplicationController) -> dict[str, str]:
        return {} if self.held is None else dict(self.held.nodes(controller.metadata.uid))


def _toleration(lease: str) -> Document:
    return {"key": MACHINE_LEASE, "operator": "Equal", "value": lease, "effect": "NoSchedule"}
