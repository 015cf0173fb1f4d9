"""The rules of ClusterRoles with an aggregation rule: those of the roles that its selectors match."""

from collections.abc import Iterable

from grange.api.meta import Document
from grange.api.selectors import Labels, SelectorError


def aggregated_rules(role: Document, roles: Iterable[Document]) -> list[Document]:
    """The rules that a role with an aggregation rule should have, each once.

    Args:
        role: the one.
        roles: all ClusterRoles.
    """
    selectors = _selectors(role)
    name = role["metadata"]["name"]
    rules: list[Document] = []
    for other in sorted(roles, key=lambda item: str(item["metadata"]["name"])):
        meta = other["metadata"]
        labels = meta.get("labels") or {}
        if meta["name"] != name and any(selector.matches(labels) for selector in selectors):
            rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules


def _selectors(role: Document) -> list[Labels]:
    found = (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
    selectors = []
    for selector in found:
        try:
            selectors.append(Labels.of(selector))
        except SelectorError:
            continue  # validation refuses it; of an older server it matches nothing
    return selectors
