"""``grange test``: the verbs for test sessions, imported when they are called."""

from grange.cli.command import LazyGroup, Section, Verb

_TEST = "grange.cli.verbs.test"
_DEPLOY, _INSPECT, _OPERATE = Section.DEPLOY, Section.INSPECT, Section.OPERATE

VERBS: dict[str, Verb] = {
    "run": Verb(_DEPLOY, f"{_TEST}.run", "Run sessions to their verdicts."),
    "convert": Verb(_DEPLOY, f"{_TEST}.convert", "Print LoadTests as test sessions."),
    "list": Verb(_INSPECT, f"{_TEST}.show", "List sessions with their verdicts.", "list_"),
    "status": Verb(_INSPECT, f"{_TEST}.status", "Show a session and its components."),
    "logs": Verb(_INSPECT, f"{_TEST}.logs", "Print the logs of a session's components."),
    "report": Verb(_INSPECT, f"{_TEST}.report", "Write a page about a session.", "report"),
    "open": Verb(_INSPECT, f"{_TEST}.report", "Open the page about a session.", "open_"),
    "rerun": Verb(_DEPLOY, f"{_TEST}.rerun", "Run sessions again as new ones."),
    "cancel": Verb(_OPERATE, f"{_TEST}.cancel", "End sessions before their time."),
}

command = LazyGroup(
    name="test",
    verbs=VERBS,
    help="Run tests of several components on reserved machines, and inspect them.",
    epilog="First steps: grange test run FILE, then grange test list.",
)
