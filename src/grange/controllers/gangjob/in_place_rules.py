"""Rules of the failure policy that nodes carry out: they restart a container inside of its pod.

A node knows exit codes alone. So it restarts after the codes for which such a rule is the first one that
matches; after every other code the pod fails, and the controller decides.
"""

from grange.api.meta import Document
from grange.controllers.gangjob.model import ExitCodeMatch, FailureAction, JobModel, JobRole

_CODES = frozenset(range(1, 256))
_FEW = len(_CODES) // 2


def restart_codes(model: JobModel, role: JobRole, container: str) -> frozenset[int]:
    """The exit codes after which the node restarts a container of the role's pods."""
    if not model.restarts_by_rule(role):
        return frozenset()
    restarted: frozenset[int] = frozenset()
    left = _CODES
    for rule in model.failure_rules:
        # A rule about conditions is about disruptions, after which no node restarts anything.
        if rule.pod_conditions or (rule.roles and role.name not in rule.roles):
            continue
        matched = _matched(rule.exit_codes, left, container)
        left -= matched
        if rule.action is FailureAction.RESTART_POD_IN_PLACE:
            restarted |= matched
    return restarted


def _matched(wanted: ExitCodeMatch | None, codes: frozenset[int], container: str) -> frozenset[int]:
    """Those of the codes of a container that the part of a rule matches; a missing one matches all."""
    if wanted is None:
        return codes
    if wanted.container and wanted.container != container:
        return frozenset()
    return codes - wanted.values if wanted.negated else codes & wanted.values


def set_restart_rules(model: JobModel, role: JobRole, spec: Document) -> None:
    """Put the rules into the containers of a pod whose restart policy is set, in place.

    Containers that have rules keep them, and sidecars are restarted in any case.
    """
    inits = [
        item for item in spec.get("initContainers") or [] if item.get("restartPolicy") != "Always"
    ]
    for container in [*inits, *spec["containers"]]:
        codes = restart_codes(model, role, container.get("name", ""))
        if codes and not container.get("restartPolicyRules"):
            container.setdefault("restartPolicy", spec["restartPolicy"])
            container["restartPolicyRules"] = [{"action": "Restart", "exitCodes": _written(codes)}]


def _written(codes: frozenset[int]) -> Document:
    """The codes as the shorter of two lists; 0 is never one of them."""
    if len(codes) <= _FEW:
        return {"operator": "In", "values": sorted(codes)}
    return {"operator": "NotIn", "values": [0, *sorted(_CODES - codes)]}
