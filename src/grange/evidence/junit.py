"""Records of sessions as JUnit XML, in the form that CI systems read; pure.

The elements and attributes are those of the schema of Jenkins' xUnit plugin, which refuses others, and which GitLab,
GitHub actions and others read too: a failure is the test's, an error that of its environment, and what was
cancelled is skipped. There only suites have properties; those of a session begin with its name.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from grange.api.kinds.testsession import CANCELED, PASSED, TEST_FAILED
from grange.evidence import session_record
from grange.evidence.plain_text import clean, tail
from grange.evidence.session_record import ComponentRecord, SessionRecord

_TEXT_LIMIT = 100_000  # characters of one log; CI systems hold the document in memory


@dataclass(frozen=True, slots=True)
class JunitSuite:
    """Sessions that were run together: a queue, a matrix or a file.

    Attributes:
        name: of the suite.
        records: its sessions, in order.
        names: of the test cases, by the session's UID; by default the name of the test, or the
            session's where several have the same test.
    """

    name: str
    records: Sequence[SessionRecord]
    names: tuple[tuple[str, str], ...] = ()


def render(suites: Sequence[JunitSuite]) -> bytes:
    """The document, in UTF-8."""
    root = ET.Element("testsuites")
    made = [_suite(suite) for suite in suites]
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(item.get(count, "0")) for item in made)))
    root.set("time", _seconds(sum(r.duration_s for suite in suites for r in suite.records)))
    root.extend(made)
    ET.indent(root)
    body: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return body + b"\n"


def _suite(suite: JunitSuite) -> ET.Element:
    names = dict(suite.names)
    tests = Counter(record.test_name for record in suite.records)
    cases = []
    for record in suite.records:
        usual = record.test_name if tests[record.test_name] == 1 else record.name
        cases.append(_case(suite.name, names.get(record.uid) or usual, record))
    element = ET.Element("testsuite", name=clean(suite.name), tests=str(len(cases)))
    for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(count, str(sum(case.find(tag) is not None for case in cases)))
    element.set("time", _seconds(sum(record.duration_s for record in suite.records)))
    begins = [session_record.instant(record.creation_time) for record in suite.records]
    if known := [begin for begin in begins if begin is not None]:
        # The schema wants xs:dateTime without a zone; the time is UTC.
        element.set("timestamp", min(known).strftime("%Y-%m-%dT%H:%M:%S"))
    if suite.records:
        properties = ET.SubElement(element, "properties")
        for record in suite.records:
            for key, value in sorted(_properties(record)):
                name = clean(f"{record.name}.{key}")
                ET.SubElement(properties, "property", name=name, value=clean(value))
    element.extend(cases)
    return element


def _case(suite: str, name: str, record: SessionRecord) -> ET.Element:
    classname = f"{record.namespace}.{suite}" if record.namespace else suite
    case = ET.Element("testcase", name=clean(name), classname=clean(classname))
    case.set("time", _seconds(record.duration_s))
    _outcome(case, record)
    if record.driver is not None and record.driver.tail:
        ET.SubElement(case, "system-out").text = _text(record.driver.tail)
    return case


def _outcome(case: ET.Element, record: SessionRecord) -> None:
    if record.verdict == PASSED and record.is_finished:
        return
    if record.verdict == CANCELED:
        ET.SubElement(case, "skipped", message=clean(record.message or "cancelled"))
        return
    if record.verdict == TEST_FAILED:
        element = ET.SubElement(case, "failure")
        element.set("type", clean(record.reason or "TestFailed"))
        element.set("message", clean(record.message or "the test failed"))
    else:
        element = ET.SubElement(case, "error")
        element.set("type", clean(record.reason or "NotFinished"))
        usual = f"the session did not finish: it is {record.phase}"
        element.set("message", clean(record.message or usual))
    parts = [record.message, *(_failed(item) for item in record.components if item.is_failed)]
    element.text = clean("\n\n".join(part for part in parts if part)) or None


def _failed(component: ComponentRecord) -> str:
    code = "" if component.exit_code is None else f", exit code {component.exit_code}"
    first = f"{component.name} on {component.node or 'no node'}{code}: {component.message}"
    if component.role == session_record.DRIVER:
        return first  # its log is the output of the test case
    return f"{first}\n{tail(component.tail, _TEXT_LIMIT)}".rstrip()


def _properties(record: SessionRecord) -> Iterator[tuple[str, str]]:
    yield from record.properties.items()
    yield "session", record.name
    yield "session.uid", record.uid
    yield "session.namespace", record.namespace
    yield "session.phase", record.phase
    yield "session.attempts", str(record.attempts)
    for item in record.components:
        where = f"component.{item.name}"
        for key, value in (("pod", item.pod), ("node", item.node), ("image", item.image)):
            if value:
                yield f"{where}.{key}", value
        for log in item.logs:
            yield f"{where}.log.{log.path.rpartition('/')[2].removesuffix('.log')}", log.path
        for index, artifact in enumerate(item.artifacts):
            yield f"{where}.artifact.{index}", artifact.path
    for node in record.nodes:
        facts = (node.pool, node.cpu and f"{node.cpu} CPU", node.memory, node.os_image, node.kernel)
        yield f"node.{node.name}", ", ".join(fact for fact in facts if fact)
    for metric in record.metrics:
        yield f"metric.{metric.name}", f"{metric.value:g} {metric.unit}".strip()


def _text(text: str) -> str:
    return tail(clean(text), _TEXT_LIMIT)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"
