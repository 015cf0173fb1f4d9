"""``grange lease``: the verbs for whole machines, imported when they are called."""

from grange.cli.command import LazyGroup, Section, Verb

_LEASE = "grange.cli.verbs.lease"
_RUN, _INSPECT, _OPERATE = Section.RUN, Section.INSPECT, Section.OPERATE

VERBS: dict[str, Verb] = {
    "acquire": Verb(_RUN, f"{_LEASE}.acquire", "Lease machines; wait, or hold for a command."),
    "renew": Verb(_RUN, f"{_LEASE}.change", "Extend leases that have a TTL.", "renew"),
    "release": Verb(_RUN, f"{_LEASE}.change", "Give machines back.", "release"),
    "list": Verb(_INSPECT, f"{_LEASE}.show", "List leases in the order of the queue.", "list_"),
    "pools": Verb(_INSPECT, f"{_LEASE}.show", "Show the machines of each pool.", "pools"),
    "clean": Verb(_OPERATE, f"{_LEASE}.change", "Mark dirty machines clean.", "clean"),
    "pause": Verb(_OPERATE, f"{_LEASE}.policy", "Grant nothing until resumed.", "pause"),
    "resume": Verb(_OPERATE, f"{_LEASE}.policy", "Grant leases again.", "resume"),
    "drain-pool": Verb(_OPERATE, f"{_LEASE}.policy", "Grant nothing more of pools.", "drain_pool"),
    "undrain-pool": Verb(
        _OPERATE, f"{_LEASE}.policy", "Grant machines of pools again.", "undrain_pool"
    ),
}

command = LazyGroup(
    name="lease",
    verbs=VERBS,
    help="Lease whole machines of pools, by hand or for a command.",
    epilog="First steps: grange lease pools, then grange lease acquire --pool workers=2.",
)
