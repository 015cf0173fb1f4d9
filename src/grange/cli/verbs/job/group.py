"""``grange job``: the verbs for jobs of every kind, imported when they are called."""

from grange.cli.command import LazyGroup, Section, Verb

_JOB = "grange.cli.verbs.job"
_DEPLOY, _INSPECT, _OPERATE = Section.DEPLOY, Section.INSPECT, Section.OPERATE

VERBS: dict[str, Verb] = {
    "run": Verb(_DEPLOY, f"{_JOB}.run", "Create jobs from manifests; wait or follow."),
    "scale": Verb(_DEPLOY, f"{_JOB}.change", "Set the replicas of roles.", "scale"),
    "list": Verb(_INSPECT, f"{_JOB}.show", "List jobs of all kinds.", "list_"),
    "status": Verb(_INSPECT, f"{_JOB}.status", "Show a job, its roles and its pods."),
    "logs": Verb(_INSPECT, f"{_JOB}.logs", "Print the logs of a job's pods."),
    "timeline": Verb(_INSPECT, f"{_JOB}.timeline", "Show when its pods waited and ran."),
    "suspend": Verb(_OPERATE, f"{_JOB}.change", "Remove the pods until resumed.", "suspend"),
    "resume": Verb(_OPERATE, f"{_JOB}.change", "Run suspended jobs again.", "resume"),
    "restart": Verb(_OPERATE, f"{_JOB}.change", "Replace the pods of all roles or one.", "restart"),
}

command = LazyGroup(
    name="job",
    verbs=VERBS,
    help="Work with GangJobs, TFJobs, PyTorchJobs and Jobs.",
    epilog="First steps: grange job run -f FILE --follow, then grange job status NAME.",
)
