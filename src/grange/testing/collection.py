"""Files ``*.session.yaml`` as tests: each cell of each session is one."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from grange.api.meta import Document
from grange.base.errors import GrangeError
from grange.cli.testruns import run_plan
from grange.cli.testruns.run_plan import PlannedSession
from grange.testing import embedded, session_runs
from grange.testing.session_runs import SessionFailed

OPTION = "--grange-kubeconfig"
SUFFIXES = (".session.yaml", ".session.yml")

_CLUSTER = pytest.StashKey[ExitStack]()
_KUBECONFIG = pytest.StashKey[Path]()


def is_session_file(path: Path) -> bool:
    """Whether the file is collected."""
    return path.name.endswith(SUFFIXES)


def kubeconfig(config: pytest.Config) -> Path:
    """The cluster of collected sessions: the one that is given, else one that is started once."""
    if given := config.getoption(OPTION):
        return Path(str(given))
    if _KUBECONFIG not in config.stash:
        stack = config.stash[_CLUSTER] = ExitStack()
        config.stash[_KUBECONFIG] = stack.enter_context(embedded.cluster()).kubeconfig
    return config.stash[_KUBECONFIG]


def stop(config: pytest.Config) -> None:
    """Stop the cluster that was started."""
    if _CLUSTER in config.stash:
        config.stash[_CLUSTER].close()


class SessionFile(pytest.File):
    """A file of sessions."""

    def collect(self) -> Iterator["SessionItem"]:
        """Its sessions, cell by cell."""
        try:
            documents = session_runs.documents_of(self.path)
            found = session_runs.plan(documents, {})
        except GrangeError as error:
            raise self.CollectError(str(error)) from error
        others = [item for item in documents if not run_plan.is_session(item)]
        for planned in found:
            made: Any = SessionItem.from_parent(self, name=planned.test)
            made.planned, made.others = planned, others
            yield made


class SessionItem(pytest.Item):
    """A session as a test.

    Attributes:
        planned: what to run.
        others: objects that it needs.
    """

    planned: PlannedSession
    others: list[Document]

    def runtest(self) -> None:
        """Run it; it fails as the session does."""
        path = kubeconfig(self.config)
        result = session_runs.run_planned(self.planned, self.others, kubeconfig=path)
        for label, text in result.logs.items():
            self.add_report_section("call", f"log of {label}", text)
        for name, value in result.metrics.items():
            self.user_properties.append((name, value))
        result.check()

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None
    ) -> str | Any:
        """The outcome of the session, without a traceback through this program."""
        if isinstance(excinfo.value, SessionFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it is defined."""
        return self.path, None, f"session {self.name}"
