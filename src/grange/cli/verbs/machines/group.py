"""``grange machines``: the verbs for machines of node pools, imported when they are called."""

from grange.cli.command import LazyGroup, Section, Verb

_MACHINES = "grange.cli.verbs.machines"
_INSPECT, _OPERATE = Section.INSPECT, Section.OPERATE

VERBS: dict[str, Verb] = {
    "list": Verb(_INSPECT, f"{_MACHINES}.show", "List machines: phase, price, pods.", "list_"),
    "pools": Verb(_INSPECT, f"{_MACHINES}.show", "List node pools with their machines.", "pools"),
    "cost": Verb(_INSPECT, f"{_MACHINES}.records", "Show what machines cost.", "cost"),
    "plan": Verb(_INSPECT, f"{_MACHINES}.reports", "Show what would be done for pools.", "plan"),
    "audit": Verb(
        _INSPECT, f"{_MACHINES}.reports", "Compare records with the provider's instances.", "audit"
    ),
    "timeline": Verb(
        _INSPECT, f"{_MACHINES}.records", "Show the lives of machines on lines.", "timeline"
    ),
    "cordon": Verb(_OPERATE, f"{_MACHINES}.change", "Let no more pods come to machines.", "cordon"),
    "uncordon": Verb(
        _OPERATE, f"{_MACHINES}.change", "Let pods come to machines again.", "uncordon"
    ),
    "drain": Verb(_OPERATE, f"{_MACHINES}.change", "Evict the pods of a machine.", "drain"),
    "return": Verb(
        _OPERATE, f"{_MACHINES}.change", "Give back the machine that a pod has.", "return_"
    ),
}

command = LazyGroup(
    name="machines",
    verbs=VERBS,
    help="Show, drain and give back the machines that node pools order.",
    epilog="First steps: grange machines pools, then grange machines list --watch.",
)
