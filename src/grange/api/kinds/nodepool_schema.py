"""The schema of NodePools; what the fields mean is in ``nodepool``."""

from grange.api import schema_builder
from grange.api.meta import Document
from grange.api.schema_builder import RULED, flag, named, several, text, whole

NAME = "dev.grange.v1alpha1.NodePool"
_ATOMIC = {"x-kubernetes-list-type": "atomic"}
_TAINT = {"$ref": "#/definitions/io.k8s.api.core.v1.Taint"}
_REQUIREMENT = {"$ref": "#/definitions/io.k8s.api.core.v1.NodeSelectorRequirement"}
_REASONS = ["Empty", "Drifted", "Expired", "Underutilized"]


def _object(properties: dict[str, Document], *required: str) -> Document:
    made: Document = {"type": "object", "properties": properties}
    return {**made, "required": [*required]} if required else made


def _strings(description: str) -> Document:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": {"type": "string"},
    }


def _at_least(least: int, description: str, **more: int) -> Document:
    return whole(description, **more, **{RULED: {"minimum": least}})


def _window() -> dict[str, Document]:
    return {
        "schedule": text("Cron expression (UTC) of the starts of the windows in which it holds."),
        "durationSeconds": _at_least(1, "Of each window; with schedule only."),
    }


def _parts() -> dict[str, Document]:
    return {
        f"{NAME}Standby": _object(
            {
                "instanceType": text("Type of the provider."),
                "count": _at_least(0, "How many.", default=0),
                "spot": flag("Spot machines."),
                "state": text(
                    "Booted, or Stopped: switched off, where the provider can.",
                    enum=["Booted", "Stopped"],
                    default="Booted",
                ),
                **_window(),
            },
            "instanceType",
        ),
        f"{NAME}Limits": _object(
            {
                "machines": _at_least(0, "How many machines."),
                "resources": schema_builder.amounts("Of all machines together."),
                "pricePerHour": text("Of all machines together, decimal."),
            }
        ),
        f"{NAME}Volume": _object(
            {
                "defaultSize": text("Of root disks.", default="5Gi"),
                "fixedSize": flag("Disks keep the size that they were made with."),
            }
        ),
        f"{NAME}NodeTemplate": _object(
            {
                "labels": _strings("Labels of nodes."),
                "annotations": _strings("Annotations of nodes."),
                "taints": several(_TAINT, "Taints of nodes.", **_ATOMIC),
                "startupTaints": several(
                    _TAINT, "Taints of new nodes that others take off.", **_ATOMIC
                ),
            }
        ),
        f"{NAME}Timeouts": _object(
            {
                "bootSeconds": _at_least(
                    1, "From the first call to the provider until the node is ready.", default=300
                ),
                "bootSecondsByType": {
                    "type": "object",
                    "description": "The same for instance types (globs); the first that matches.",
                    "additionalProperties": {"type": "integer", "format": "int32"},
                },
                "healthySeconds": _at_least(
                    1, "An available machine that is silent for so long is ended.", default=90
                ),
                "healthcheckPauseSeconds": _at_least(
                    1, "Between looks at a machine that boots.", default=5
                ),
                "idleSeconds": _at_least(
                    0, "So long a machine that nothing needs is kept.", default=30
                ),
            }
        ),
        f"{NAME}Budget": _object(
            {
                "nodes": text("A count, or a percentage of the pool's machines.", default="10%"),
                "reasons": several(
                    {"type": "string", "enum": _REASONS},
                    f"Any of {', '.join(_REASONS)}; all by default.",
                    **{"x-kubernetes-list-type": "set"},
                ),
                **_window(),
            }
        ),
        f"{NAME}Disruption": _object(
            {
                "policy": text(
                    "Which machines are taken away.",
                    enum=["WhenEmpty", "WhenEmptyOrUnderutilized"],
                    default="WhenEmptyOrUnderutilized",
                ),
                "consolidateAfterSeconds": _at_least(
                    0, "So long nothing may have changed on a machine before.", default=30
                ),
                "expireAfterSeconds": _at_least(
                    0, "Machines older than this are replaced; 0: never.", default=2_592_000
                ),
                "terminationGracePeriodSeconds": _at_least(
                    0, "After so long a drain evicts by force; by default it waits."
                ),
                "minSavingsPercent": _at_least(
                    0, "A replacement must be cheaper by so much.", default=15
                ),
                "budgets": several(
                    {"$ref": f"#/definitions/{NAME}Budget"},
                    "Of those that are active the strictest counts; none is 10%.",
                    **_ATOMIC,
                ),
            }
        ),
    }


def _spec() -> dict[str, Document]:
    return {
        "provider": named("Who makes the machines, e.g. local.", required=True),
        "providerConfig": {
            "type": "object",
            "description": "For the provider, which checks it.",
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "mode": text(
            "Packed: many pods a machine, placed by the scheduler. Dedicated: one pod a machine.",
            enum=["Packed", "Dedicated"],
            default="Packed",
        ),
        "instanceTypes": several(
            {"type": "string"},
            "Types that may be used, globs; all that meet the requirements by default.",
            **_ATOMIC,
        ),
        "requirements": several(
            _REQUIREMENT, "On types and zones, by the labels that nodes get.", **_ATOMIC
        ),
        "defaultInstanceType": text("For pods of a dedicated pool that request nothing."),
        "spot": text(
            "Preferred: on demand where spot cannot be had.",
            enum=["Never", "Preferred", "Always"],
            default="Never",
        ),
        "weight": whole(
            "Of pools that could serve a pod, the heaviest is tried first.",
            default=1,
            **{RULED: {"minimum": 1, "maximum": 100}},
        ),
        "limits": schema_builder.reference(f"{NAME}Limits", "More is never ordered."),
        "standby": several(
            {"$ref": f"#/definitions/{NAME}Standby"},
            "Machines that are kept ready; equal entries add up.",
            **_ATOMIC,
        ),
        "bootImage": _strings("How the provider finds the image; the newest match is used."),
        "volume": schema_builder.reference(f"{NAME}Volume", "Root disks."),
        "template": schema_builder.reference(f"{NAME}NodeTemplate", "What nodes have."),
        "bootstrap": text(
            "Agent: the machine installs and starts grange agent. UserData: the user data makes it "
            "join, to any cluster.",
            enum=["Agent", "UserData"],
            default="Agent",
        ),
        "userData": text("Cloud-config to merge with, or a template."),
        "cleaning": text(
            "What is done with a used machine of a dedicated pool.",
            enum=["Terminate", "Wipe"],
            default="Terminate",
        ),
        "timeouts": schema_builder.reference(f"{NAME}Timeouts", "How long things may take."),
        "maxBootPerIteration": _at_least(1, "Launches at most in one pass.", default=10),
        "disruption": schema_builder.reference(
            f"{NAME}Disruption", "When machines that work are taken away or replaced."
        ),
    }


DEFINITIONS: dict[str, Document] = {
    **_parts(),
    **schema_builder.definitions(
        NAME,
        "grange.dev",
        "v1alpha1",
        "Machines of one provider, ordered when pods wait for them.",
        required=("provider",),
        spec=_spec(),
        status={
            "observedGeneration": schema_builder.observed_generation(),
            "machines": {
                "type": "object",
                "description": "Number of machines by phase.",
                "additionalProperties": {"type": "integer", "format": "int32"},
            },
            "resources": schema_builder.amounts("Of all machines."),
            "pricePerHour": text("Of all instances, decimal."),
            "bootImage": text("That new machines get."),
            "maxMachines": whole("How many machines the limits allow; none: no limit."),
            "bootSeconds": whole(
                "From a launch until the machine has joined, the median of the last ones."
            ),
            "conditions": schema_builder.conditions(),
            "reports": _strings("Requested reports as JSON, by the id of their request."),
        },
    ),
}
