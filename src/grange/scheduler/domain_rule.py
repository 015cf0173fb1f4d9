"""Rules about how many pods a topology domain has, stated once for one count and for many."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from grange.placement.columns import Ids, Integers, Mask
from grange.scheduler.domains import Domains
from grange.scheduler.explanation import Refusals
from grange.scheduler.framework import Rule


class DomainRule(ABC):
    """A ``framework.Rule`` about counts.

    Args:
        domains: the counts.

    Attributes:
        key: the label key.
        by_count: a verdict depends on the domain's own count alone.
        resolvable: whether a refusal may end once pods are gone.
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

    def refresh(self) -> list[int] | None:
        """Take in what changed; see ``framework.Rule``."""
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

    def __init__(self, refusals: Refusals, rules: Sequence[Rule]) -> None:
        self.refusals = refusals
        table = refusals.snapshot.table
        self.ids: list[Ids] = [table.labels(rule.key).ids[table.all] for rule in rules]
        self.lacks: Integers = np.zeros(len(refusals.refused), np.int64)
        for rule, ids in zip(rules, self.ids, strict=True):
            self.lacks += ~rule.verdicts()[ids] & refusals.refused
        self.severity = refusals.no_severity()
