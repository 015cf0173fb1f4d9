"""Rules of roles and bindings, as Kubernetes has them."""

from grange.api import names
from grange.api.meta import Document
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.selectors import check_label_selector

GROUP = "rbac.authorization.k8s.io"
ROLE, CLUSTERROLE = "Role", "ClusterRole"
USER, USER_GROUP, SERVICEACCOUNT = "User", "Group", "ServiceAccount"


def check_role(document: Document, _old: Document | None = None) -> list[Cause]:
    """What is wrong with a Role."""
    faults = Faults()
    _check_rules(document, faults, namespaced=True)
    return faults.causes


def check_cluster_role(document: Document, _old: Document | None = None) -> list[Cause]:
    """What is wrong with a ClusterRole."""
    faults = Faults()
    _check_rules(document, faults, namespaced=False)
    aggregation = document.get("aggregationRule")
    if aggregation is not None:
        path = "aggregationRule.clusterRoleSelectors"
        selectors = aggregation.get("clusterRoleSelectors")
        if not selectors:
            faults.required(path, "at least one clusterRoleSelector required if aggregationRule")
        for index, selector in enumerate(selectors or ()):
            check_label_selector(selector, f"{path}[{index}]", faults)
    return faults.causes


def _check_rules(document: Document, faults: Faults, *, namespaced: bool) -> None:
    for index, rule in enumerate(document.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            faults.required(f"{path}.verbs", "verbs must contain at least one value")
        if urls := rule.get("nonResourceURLs"):
            if namespaced:
                message = "namespaced rules cannot apply to non-resource URLs"
                faults.invalid(f"{path}.nonResourceURLs", urls, message)
            if any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
                message = "rules cannot apply to both regular resources and non-resource URLs"
                faults.invalid(f"{path}.nonResourceURLs", urls, message)
            continue
        if not rule.get("apiGroups"):
            message = "resource rules must supply at least one api group"
            faults.required(f"{path}.apiGroups", message)
        if not rule.get("resources"):
            message = "resource rules must supply at least one resource"
            faults.required(f"{path}.resources", message)


def set_binding_defaults(document: Document) -> None:
    """Name the API group of the role, and of users and groups."""
    reference = document.get("roleRef")
    if isinstance(reference, dict) and not reference.get("apiGroup"):
        document["roleRef"] = {**reference, "apiGroup": GROUP}
    subjects = document.get("subjects")
    if not isinstance(subjects, list):
        return
    for index, subject in enumerate(subjects):
        if not isinstance(subject, dict) or subject.get("apiGroup"):
            continue
        if subject.get("kind") in (USER, USER_GROUP):
            subjects[index] = {**subject, "apiGroup": GROUP}


def check_role_binding(document: Document, old: Document | None) -> list[Cause]:
    """What is wrong with a RoleBinding."""
    return _check_binding(document, old, (ROLE, CLUSTERROLE))


def check_cluster_role_binding(document: Document, old: Document | None) -> list[Cause]:
    """What is wrong with a ClusterRoleBinding."""
    return _check_binding(document, old, (CLUSTERROLE,))


def _check_binding(document: Document, old: Document | None, kinds: tuple[str, ...]) -> list[Cause]:
    faults = Faults()
    reference = document.get("roleRef") or {}
    if reference.get("apiGroup") != GROUP:
        faults.not_supported("roleRef.apiGroup", reference.get("apiGroup"), (GROUP,))
    if reference.get("kind") not in kinds:
        faults.not_supported("roleRef.kind", reference.get("kind"), kinds)
    name = reference.get("name") or ""
    if not name:
        faults.required("roleRef.name")
    else:
        faults.named("roleRef.name", name, names.check_path_segment(name))
    for index, subject in enumerate(document.get("subjects") or ()):
        _check_subject(subject, f"subjects[{index}]", faults)
    if old is not None and old.get("roleRef") != reference:
        message = "cannot change roleRef; delete the binding and create it again"
        faults.invalid("roleRef", reference, message)
    return faults.causes


def _check_subject(subject: Document, path: str, faults: Faults) -> None:
    kind, name, group = (subject.get(field) or "" for field in ("kind", "name", "apiGroup"))
    if not name:
        faults.required(f"{path}.name")
    if kind == SERVICEACCOUNT:
        if name:
            faults.named(f"{path}.name", name, names.check_dns_subdomain(name))
        if group:
            faults.not_supported(f"{path}.apiGroup", group, ("",))
        if not subject.get("namespace"):
            faults.required(f"{path}.namespace")
    elif kind in {USER, USER_GROUP}:
        if group != GROUP:
            faults.not_supported(f"{path}.apiGroup", group, (GROUP,))
    else:
        choices = (SERVICEACCOUNT, USER, USER_GROUP)
        faults.not_supported(f"{path}.kind", kind, choices)
