"""``grange test``: the verbs for test sessions, imported when they are called."""

from grange.cli.command import LazyGroup, Section, Verb

_TEST = "grange.cli.verbs.test"
_INSPECT, _OPERATE = Section.INSPECT, Section.OPERATE

VERBS: dict[str, Verb] = {
    "list": Verb(_INSPECT, f"{_TEST}.show", "List sessions with their verdicts.", "list_"),
    "status": Verb(_INSPECT, f"{_TEST}.status", "Show a session and its components."),
    "cancel": Verb(_OPERATE, f"{_TEST}.cancel", "End sessions before their time."),
}

command = LazyGroup(
    name="test",
    verbs=VERBS,
    help="Run tests of several components on reserved machines, and inspect them.",
    epilog="First steps: grange test list, then grange test status NAME --watch.",
)
