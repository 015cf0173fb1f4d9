"""``grange rc``: the verbs for ReplicationControllers, imported when they are called."""

from grange.cli.command import LazyGroup, Section, Verb

_RC = "grange.cli.verbs.rc"
_DEPLOY, _INSPECT, _OPERATE = Section.DEPLOY, Section.INSPECT, Section.OPERATE

VERBS: dict[str, Verb] = {
    "create": Verb(_DEPLOY, f"{_RC}.create", "Create a controller with no replicas yet."),
    "scale": Verb(_DEPLOY, f"{_RC}.counts", "Set or change the number of replicas.", "scale"),
    "update-template": Verb(
        _DEPLOY,
        f"{_RC}.settings",
        "Replace the pods by those of another template.",
        "update_template",
    ),
    "rollout": Verb(_DEPLOY, f"{_RC}.rollout", "Start, watch, pause and undo rollouts."),
    "delete": Verb(_DEPLOY, f"{_RC}.delete", "Delete controllers; their pods stay."),
    "list": Verb(_INSPECT, f"{_RC}.show", "List controllers.", "list_"),
    "get": Verb(_INSPECT, f"{_RC}.show", "Print controllers, or only their templates.", "get"),
    "status": Verb(_INSPECT, f"{_RC}.status", "Show a controller, its rollout and its pods."),
    "enable": Verb(_OPERATE, f"{_RC}.settings", "Resume scaling and repair.", "enable"),
    "disable": Verb(_OPERATE, f"{_RC}.settings", "Stop scaling and repair.", "disable"),
    "set-strategy": Verb(
        _OPERATE, f"{_RC}.settings", "Set whether pods may move between nodes.", "set_strategy"
    ),
    "remove-pod": Verb(_OPERATE, f"{_RC}.counts", "Remove a pod and one replica.", "remove_pod"),
    "drain-node": Verb(_OPERATE, f"{_RC}.nodes", "Move pods off a node.", "drain_node"),
    "undrain-node": Verb(_OPERATE, f"{_RC}.nodes", "Allow pods on a node again.", "undrain_node"),
    "pause-transfers": Verb(
        _OPERATE,
        f"{_RC}.nodes",
        "Start no transfers of pods for a while.",
        "pause_transfers",
        replaces="lock-transfers",
    ),
    "resume-transfers": Verb(
        _OPERATE,
        f"{_RC}.nodes",
        "Allow transfers of pods again.",
        "resume_transfers",
        replaces="unlock-transfers",
    ),
}

command = LazyGroup(
    name="rc",
    verbs=VERBS,
    help="Work with ReplicationControllers.",
    epilog="First steps: grange rc create web -f POD.yaml, then grange rc scale web --replicas 3.",
)
