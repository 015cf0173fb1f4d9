"""Taints and tolerations."""

import pytest

from grange.api.kinds.node import Taint
from grange.api.kinds.pod import Toleration
from grange.placement import taint_toleration

TAINT = Taint(key="k", value="v", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "answer"),
    [
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="v", operator=""), True),
        (Toleration(key="k", value="w"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="", operator="Equal", value="v"), False),
        (Toleration(key="j", operator="Exists"), False),
        (Toleration(key="k", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", value="v", effect="NoExecute"), False),
        (Toleration(key="k", value="v", operator="Like"), False),
    ],
)
def test_toleration_matches_by_key_operator_and_effect(
    toleration: Toleration, answer: bool
) -> None:
    assert taint_toleration.tolerates(toleration, TAINT) is answer


def test_the_first_hard_taint_is_named() -> None:
    """The message names one taint; preferences never keep a pod away."""
    soft = Taint(key="soft", effect="PreferNoSchedule")
    second = Taint(key="second", effect="NoExecute")
    assert taint_toleration.first_untolerated([soft, TAINT, second], []) == TAINT
    only_first = [Toleration(key="k", operator="Exists")]
    assert taint_toleration.first_untolerated([soft, TAINT, second], only_first) == second
    assert taint_toleration.first_untolerated([soft], []) is None


def test_preferences_are_counted() -> None:
    soft = [Taint(key=key, effect="PreferNoSchedule") for key in "abc"]
    tolerations = [Toleration(key="b", operator="Exists", effect="PreferNoSchedule")]
    assert taint_toleration.count_intolerable_preferences([*soft, TAINT], tolerations) == 2
