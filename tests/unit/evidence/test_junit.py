"""JUnit XML: the structure that CI systems expect, and what stands for which verdict."""

from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
import xmlschema
from hypothesis import given, strategies as st
from tests.support.source_tree import ROOT
from tests.unit.evidence.session_documents import DRIVER, SERVER, node, session

from grange.evidence import junit, session_record
from grange.evidence.junit import JunitSuite
from grange.evidence.session_record import KeptFile, SessionRecord

SCHEMA = xmlschema.XMLSchema(ROOT / "tests" / "support" / "junit.xsd")
OUTCOMES = {"failures": "failure", "errors": "error", "skipped": "skipped"}


def parse(body: bytes) -> ET.Element:
    return ET.fromstring(body.decode())  # noqa: S314  rendered here


def check(root: ET.Element) -> None:
    """Fail unless a document is valid, and its counts are those of its test cases."""
    SCHEMA.validate(root)
    for element in (root, *root.iter("testsuite")):
        assert element.get("tests") == str(len([*element.iter("testcase")]))
        for count, tag in OUTCOMES.items():
            if element is not root or count != "skipped":
                assert element.get(count) == str(len([*element.iter(tag)]))


def rendered(*records: SessionRecord, **names: str) -> ET.Element:
    body = junit.render([JunitSuite("nightly", records, tuple(names.items()))])
    root = parse(body)
    check(root)
    return root


def record(tail: str = "", **changed: Any) -> SessionRecord:
    made = session_record.record_of(session(**changed), [node("m0"), node("m1")])
    log = [KeptFile("logs/1/bench-x7-driver/main.log", 3)]
    return session_record.with_files(
        made, {"bench-x7-driver": log}, {}, {"bench-x7-driver": tail, "bench-x7-server": tail}
    )


def only_case(root: ET.Element) -> ET.Element:
    (case,) = root.iter("testcase")
    return case


def test_passed_session_is_a_plain_case() -> None:
    root = rendered(record("all good\n"))
    case = only_case(root)
    assert (case.get("name"), case.get("classname")) == ("bench", "ci.nightly")
    assert case.get("time") == "90.500"
    assert [child.tag for child in case] == ["system-out"]
    assert case.findtext("system-out") == "all good\n"
    assert root.find("testsuite[@timestamp='2026-11-21T10:00:00']") is not None


def test_properties_name_machines_images_and_logs() -> None:
    root = rendered(record())
    found = {item.get("name"): item.get("value") for item in root.iter("property")}
    assert found["bench-x7.component.driver.node"] == "m0"
    assert found["bench-x7.component.server.image"] == "server@sha256:2"
    assert found["bench-x7.component.driver.log.main"] == "logs/1/bench-x7-driver/main.log"
    assert found["bench-x7.node.m0"] == "workers, 8 CPU, 32Gi, Debian 13, 6.1.0"
    assert found["bench-x7.metric.p99"] == "1.25 ms"
    assert [*found] == sorted(found, key=str)


@pytest.mark.parametrize(
    ("phase", "verdict", "tag", "type_"),
    [
        ("Failed", "Failed", "failure", "TestFailed"),
        ("Errored", "Error", "error", "TestFailed"),
        ("Cancelled", "Cancelled", "skipped", None),
    ],
)
def test_verdicts_are_distinguished(phase: str, verdict: str, tag: str, type_: str | None) -> None:
    root = rendered(record(phase=phase, verdict=verdict, reason="TestFailed", message="100 % bad"))
    element = only_case(root).find(tag)
    assert element is not None
    assert (element.get("type"), element.get("message")) == (type_, "100 % bad")
    (suite,) = root
    assert {name: suite.get(name) for name in OUTCOMES} == {
        name: str(int(tag == other)) for name, other in OUTCOMES.items()
    }
    assert [child.tag for child in only_case(root)] == [tag]


@pytest.mark.parametrize(("phase", "verdict"), [("Running", ""), ("Cleaning", "Passed")])
def test_unfinished_session_is_an_error(phase: str, verdict: str) -> None:
    element = only_case(rendered(record(phase=phase, verdict=verdict))).find("error")
    assert element is not None
    assert element.get("message") == f"the session did not finish: it is {phase}"


def test_failure_has_the_log_of_the_failed_worker() -> None:
    server = {**SERVER, "health": "Failed", "exitCode": 137, "message": "OOMKilled"}
    body = only_case(
        rendered(
            record(
                "out of memory\n",
                phase="Failed",
                verdict="Failed",
                message="server failed",
                components=[server, DRIVER],
            )
        )
    ).findtext("failure")
    assert body == "server failed\n\nserver on m1, exit code 137: OOMKilled\nout of memory"


def test_sessions_of_one_test_keep_their_names_apart() -> None:
    first = record()
    second = msgspec.structs.replace(first, name="bench-y8", uid="u-2")
    third = msgspec.structs.replace(first, name="other", uid="u-3", test_name="other")
    cases = rendered(first, second, third).iter("testcase")
    assert [case.get("name") for case in cases] == ["bench-x7", "bench-y8", "other"]
    cases = rendered(first, second, **{"u-1": "qps=1", "u-2": "qps=2"}).iter("testcase")
    assert [case.get("name") for case in cases] == ["qps=1", "qps=2"]


def test_colours_and_illegal_characters_are_removed() -> None:
    tail = "\x1b[31mred\x1b[0m \x00nul \x08 \ud800 ]]> <b> & \ufffe end"
    case = only_case(rendered(record(tail)))
    assert case.findtext("system-out") == "red nul   ]]> <b> &  end"


def test_long_log_is_cut_at_its_beginning() -> None:
    text = "".join(f"line {number}\n" for number in range(50_000))
    found = only_case(rendered(record(text))).findtext("system-out") or ""
    assert len(found) < 101_000
    assert found.startswith("… ")
    assert found.endswith("line 49999\n")


@pytest.mark.parametrize(
    "body",
    [
        '<testsuites skipped="0"/>',
        '<testsuites><testsuite name="s" tests="1" failures="0" errors="0" skipped="0" time="1.000">'
        '<testcase name="c" classname="k" time="1.000"><properties/></testcase></testsuite></testsuites>',
        '<testsuites><testsuite name="s" tests="1" failures="1" errors="1" skipped="0" time="1.000">'
        '<testcase name="c" classname="k" time="1.000"><failure type="t" message="m"/>'
        '<error type="t" message="m"/></testcase></testsuite></testsuites>',
        '<testsuites time="1"/>',
    ],
)
def test_what_ci_systems_refuse_is_not_valid(body: str) -> None:
    assert not SCHEMA.is_valid(parse(body.encode()))


def test_empty_suite_is_valid() -> None:
    assert rendered().get("tests") == "0"
    check(parse(junit.render([])))


@given(st.text(), st.text(), st.sampled_from(["Passed", "Failed", "Error", "Cancelled", ""]))
def test_any_text_makes_a_valid_document(text: str, name: str, verdict: str) -> None:
    made = record(text, phase="Failed", verdict=verdict, message=text, reason=text)
    rendered(msgspec.structs.replace(made, test_name=name, properties={text: name}))
