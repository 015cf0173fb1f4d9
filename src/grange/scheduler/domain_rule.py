"""Rules about how many pods a topology domain has, stated once for one count and for many."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from grange.placement.columns import Ids, Integers, Mask
from grange.scheduler.domains import Domains
from grange.scheduler.plugin_explanation import Refusals


class DomainRule(ABC):
    """One rule about the domains of a label key, for pods of one class.

    Args:
        domains: the counts.

    Attributes:
        key: the label key.
        by_count: a verdict depends on the domain's own count alone, so that it seldom changes;
            otherwise one change may turn the verdict on every domain.
        resolvable: a refusal may end once pods are gone, except for a missing key.
        outside: the verdict on nodes without the key.
    """

    by_count: bool = True
    resolvable: bool = True
    outside: bool = False

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.key = domains.key

    @abstractmethod
    def accepts(self, count: Any) -> Any:
        """Whether a domain with so many pods is accepted; of one count, or of an array of them."""

    @abstractmethod
    def reason(self, *, missing: bool) -> str:
        """Why not, for a node without the key or in a refused domain."""

    def count_reasons(self, refused: Ids) -> list[tuple[str, int]]:
        """Of the domains of refused nodes: each reason and its number of nodes."""
        missing = int(np.count_nonzero(refused < 0))
        counts = ((missing, True), (len(refused) - missing, False))
        return [(self.reason(missing=without), count) for count, without in counts if count]

    def refresh(self) -> list[int] | None:
        """Take in what changed.

        Returns:
            The domains whose verdict may have changed; None for all of them.
        """
        return self.domains.changes()

    def verdicts(self) -> Mask:
        """By domain, and last for nodes without the key, whether it is accepted."""
        verdicts: Mask = self.accepts(self.domains.counts)
        verdicts[-1] = self.outside
        return verdicts

    def opens(self, domain: int) -> bool:
        """Whether one domain is accepted; -1 for nodes without the key."""
        return bool(self.accepts(self.domains.count[domain])) if domain >= 0 else self.outside


class DomainExplanation:
    """Base of explanations by rule about domains.

    Args:
        refusals: where the plugin refuses.
        rules: its rules.
    """

    def __init__(self, refusals: Refusals, rules: Sequence[DomainRule]) -> None:
        self.refusals = refusals
        table = refusals.snapshot.table
        self.ids: list[Ids] = [table.labels(rule.key).ids[table.all] for rule in rules]
        self.lacks: Integers = np.zeros(len(refusals.refused), np.int64)
        for rule, ids in zip(rules, self.ids, strict=True):
            self.lacks += ~rule.verdicts()[ids] & refusals.refused
        self.severity = refusals.no_severity()
