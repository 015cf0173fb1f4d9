"""``grange machines``: the verbs for machines of node pools, imported when they are called."""

from grange.cli.command import LazyGroup, Section, Verb

_MACHINES = "grange.cli.verbs.machines"
_INSPECT = Section.INSPECT

VERBS: dict[str, Verb] = {
    "list": Verb(_INSPECT, f"{_MACHINES}.show", "List machines: phase, price, pods.", "list_"),
    "pools": Verb(_INSPECT, f"{_MACHINES}.show", "List node pools with their machines.", "pools"),
}

command = LazyGroup(
    name="machines",
    verbs=VERBS,
    help="Show the machines that node pools order, and what they cost.",
    epilog="First steps: grange machines pools, then grange machines list --watch.",
)
