"""Rules of affinity and spreading that came after the first ones, and limits on how many there are."""

from typing import Any

import pytest

from grange.api.kinds import POD
from grange.api.meta import Document
from grange.sim import builders

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ANTI = f"spec.affinity.podAntiAffinity.{REQUIRED}"
SPREAD = "spec.topologySpreadConstraints"


def faults(**spec: Any) -> list[tuple[str, str]]:
    document = builders.pod_document("web", **spec)
    POD.default(document)
    found = POD.validate(document, None)
    return [(cause.field, cause.message) for cause in found]


def term(**fields: Any) -> Document:
    selector = {"matchLabels": {"app": "web"}}
    one = {"topologyKey": "zone", "labelSelector": selector, **fields}
    return {"podAntiAffinity": {REQUIRED: [one]}}


def spread(**fields: Any) -> list[Document]:
    usual = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    return [{**usual, "labelSelector": {"matchLabels": {"app": "web"}}, **fields}]


def test_keys_that_narrow_a_selector_are_fine() -> None:
    both = {"matchLabelKeys": ["version"], "mismatchLabelKeys": ["team"]}
    policies = {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor", "minDomains": 2}
    assert faults(affinity=term(**both)) == []
    assert faults(topologySpreadConstraints=spread(matchLabelKeys=["version"], **policies)) == []


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (
            {"affinity": term(matchLabelKeys=["a"], labelSelector=None)},
            f"{ANTI}[0].matchLabelKeys",
            "Forbidden: must not be specified when labelSelector is not set",
        ),
        (
            {"affinity": term(matchLabelKeys=["a"], mismatchLabelKeys=["a"])},
            f"{ANTI}[0].matchLabelKeys[0]",
            "exists in both matchLabelKeys and mismatchLabelKeys",
        ),
        ({"affinity": term(mismatchLabelKeys=["a b"])}, f"{ANTI}[0].mismatchLabelKeys[0]", "a b"),
        (
            {"topologySpreadConstraints": spread(matchLabelKeys=["a"], labelSelector=None)},
            f"{SPREAD}[0].matchLabelKeys",
            "Forbidden: must not be specified when labelSelector is not set",
        ),
        (
            {"topologySpreadConstraints": spread(nodeTaintsPolicy="Maybe")},
            f"{SPREAD}[0].nodeTaintsPolicy",
            'supported values: "Honor", "Ignore"',
        ),
        (
            {"topologySpreadConstraints": spread(nodeAffinityPolicy="")},
            f"{SPREAD}[0].nodeAffinityPolicy",
            'supported values: "Honor", "Ignore"',
        ),
        (
            {"topologySpreadConstraints": spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway")},
            f"{SPREAD}[0].minDomains",
            "can only use minDomains if whenUnsatisfiable=DoNotSchedule",
        ),
    ],
)
def test_keys_and_policies_that_cannot_be_meant(
    spec: dict[str, Any], field: str, message: str
) -> None:
    ((at, reported),) = faults(**spec)
    assert at == field
    assert message in reported


def many(count: int) -> list[Document]:
    return [{"topologyKey": f"key-{at}"} for at in range(count)]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"affinity": {"podAntiAffinity": {REQUIRED: many(257)}}}, ANTI),
        (
            {
                "affinity": {
                    "podAffinity": {
                        PREFERRED: [{"weight": 1, "podAffinityTerm": item} for item in many(257)]
                    }
                }
            },
            f"spec.affinity.podAffinity.{PREFERRED}",
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        REQUIRED: {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                            ]
                            * 257
                        }
                    }
                }
            },
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **item}
                    for item in many(65)
                ]
            },
            SPREAD,
        ),
        ({"tolerations": [{"key": f"k{at}"} for at in range(1025)]}, "spec.tolerations"),
        (
            {
                "affinity": term(
                    labelSelector={"matchExpressions": [{"key": "a", "operator": "Exists"}] * 257}
                )
            },
            f"{ANTI}[0].labelSelector.matchExpressions",
        ),
        (
            {
                "affinity": term(
                    labelSelector={
                        "matchExpressions": [
                            {
                                "key": "a",
                                "operator": "In",
                                "values": [f"v{at}" for at in range(5001)],
                            }
                        ]
                    }
                )
            },
            f"{ANTI}[0].labelSelector.matchExpressions[0].values",
        ),
    ],
)
def test_absurd_numbers_are_refused_by_the_path_of_the_list(
    spec: dict[str, Any], field: str
) -> None:
    """Each of them would be looked at again for every pod that is placed."""
    ((at, reported),) = faults(**spec)
    assert at == field
    assert "must have at most" in reported


@pytest.mark.parametrize("amount", ["-1", "1.5.2", "a", "1e400"])
def test_amounts_that_are_none_are_refused_by_their_name(amount: str) -> None:
    ((at, _),) = faults(requests={"cpu": amount})
    assert at == "spec.containers[0].resources.requests.cpu"


QUEUE, GROUP = "grange.dev/queue", "scheduling.x-k8s.io/pod-group"


@pytest.mark.parametrize("label", [QUEUE, GROUP])
@pytest.mark.parametrize(
    ("before", "after"), [("a", "b"), ("a", None), (None, "b")], ids=["other", "taken", "given"]
)
def test_whose_quota_a_pod_uses_is_settled_once_it_has_a_node(
    label: str, before: str | None, after: str | None
) -> None:
    """Or it would be admitted to one queue and run at the expense of another, or of none."""

    def labelled(value: str | None, node: str) -> Document:
        labels = {"app": "x", **({} if value is None else {label: value})}
        where: dict[str, Any] = {"nodeName": node} if node else {}
        return builders.pod_document("web", labels=labels, **where)

    def change(node: str, value: str | None) -> list[tuple[str, str]]:
        found = POD.validate(labelled(value, node), labelled(before, node))
        return [(cause.field, cause.message) for cause in found]

    refused = "Forbidden: may not change once the pod has a node: its quota counts there"
    assert change("n", after) == [(f"metadata.labels[{label}]", refused)]
    assert change("n", before) == []
    assert change("", after) == []


def test_other_labels_of_a_placed_pod_may_change() -> None:
    labels = [{"app": "x", QUEUE: "q", GROUP: "g"}, {"app": "y", QUEUE: "q", GROUP: "g"}]
    before, after = (builders.pod_document("web", labels=item, nodeName="n") for item in labels)
    assert POD.validate(after, before) == []
