"""``grange rc``: the verbs for ReplicationControllers, imported when they are called."""

from grange.cli.main import LazyGroup, Verb

_HERE = "grange.cli.verbs.rc"

VERBS: dict[str, Verb] = {
    "create": Verb(f"{_HERE}.create", "Create a controller that asks for no replicas yet."),
    "delete": Verb(f"{_HERE}.delete", "Delete controllers; their pods stay."),
    "disable": Verb(
        f"{_HERE}.switches", "Leave controllers alone: no scaling, no repair.", "disable"
    ),
    "drain-node": Verb(f"{_HERE}.nodes", "Have pods leave a node.", "drain_node"),
    "enable": Verb(f"{_HERE}.switches", "Have controllers scaled and repaired again.", "enable"),
    "get": Verb(f"{_HERE}.show", "Print controllers, or only their templates.", "get"),
    "list": Verb(f"{_HERE}.show", "List controllers.", "list_"),
    "lock-transfers": Verb(
        f"{_HERE}.nodes", "Begin no move of pods for a while.", "lock_transfers"
    ),
    "remove-pod": Verb(f"{_HERE}.counts", "Take away one pod and one replica.", "remove_pod"),
    "rollout": Verb(f"{_HERE}.rollout", "Start, watch, pause and undo rollouts."),
    "scale": Verb(f"{_HERE}.counts", "Set, raise or lower the number of replicas.", "scale"),
    "set-strategy": Verb(f"{_HERE}.switches", "Say whether pods may move.", "set_strategy"),
    "status": Verb(f"{_HERE}.status", "Show how a controller and its pods are."),
    "undrain-node": Verb(f"{_HERE}.nodes", "Let pods come to a node again.", "undrain_node"),
    "unlock-transfers": Verb(f"{_HERE}.nodes", "Take the lock off.", "unlock_transfers"),
    "update-template": Verb(
        f"{_HERE}.switches", "Make pods from another template.", "update_template"
    ),
}

command = LazyGroup(
    name="rc",
    verbs=VERBS,
    help="Work with ReplicationControllers.",
    epilog="First steps: grange rc create web -f POD.yaml, then grange rc scale web --replicas 3.",
)
