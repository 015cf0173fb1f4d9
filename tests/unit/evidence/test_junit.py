"""JUnit XML: the structure that CI systems expect, and what stands for which verdict."""

import re
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.unit.evidence.session_documents import DRIVER, SERVER, node, session

from grange.evidence import junit, session_record
from grange.evidence.junit import JunitSuite
from grange.evidence.session_record import KeptFile, SessionRecord

# The schema of Jenkins' xUnit plugin, as tables: attributes (True: required) and children in order.
ATTRIBUTES: dict[str, dict[str, bool]] = {
    "testsuites": dict.fromkeys(("tests", "failures", "errors", "skipped", "time"), False),
    "testsuite": {
        "name": True,
        "tests": True,
        "failures": True,
        "errors": True,
        "skipped": False,
        "time": False,
        "timestamp": False,
    },
    "testcase": {"name": True, "classname": True, "time": True},
    "properties": {},
    "property": {"name": True, "value": True},
    "failure": {"message": False, "type": True},
    "error": {"message": False, "type": True},
    "skipped": {"message": False},
    "system-out": {},
}
CHILDREN: dict[str, list[str]] = {
    "testsuites": ["testsuite"],
    "testsuite": ["properties", "testcase", "system-out"],
    "testcase": ["properties", "skipped", "error", "failure", "system-out"],
    "properties": ["property"],
}
REPEATED = {"testsuite", "testcase", "property"}
COUNTS = {"tests", "failures", "errors", "skipped"}


def parse(body: bytes) -> ET.Element:
    return ET.fromstring(body.decode())  # noqa: S314  rendered here


def check_element(element: ET.Element) -> None:
    """Fail unless the element and all below it follow the schema."""
    allowed = ATTRIBUTES[element.tag]
    assert set(element.attrib) <= set(allowed), element.tag
    assert {name for name, required in allowed.items() if required} <= set(element.attrib)
    for name, value in element.attrib.items():
        if name in COUNTS:
            assert re.fullmatch(r"[0-9]+", value)
        elif name == "time":
            assert re.fullmatch(r"[0-9]+\.[0-9]{3}", value)
        elif name == "timestamp":
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", value)
    order = CHILDREN.get(element.tag, [])
    tags = [child.tag for child in element]
    assert [order.index(tag) for tag in tags] == sorted(order.index(tag) for tag in tags)
    assert all(tag in REPEATED or tags.count(tag) == 1 for tag in tags)
    if element.tag == "testcase":
        assert len({"skipped", "error", "failure"} & set(tags)) <= 1
    if element.tag == "testsuite":
        cases = element.findall("testcase")
        assert element.get("tests") == str(len(cases))
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert element.get(count) == str(sum(case.find(tag) is not None for case in cases))
    for child in element:
        check_element(child)


def rendered(*records: SessionRecord, **names: str) -> ET.Element:
    body = junit.render([JunitSuite("nightly", records, tuple(names.items()))])
    root = parse(body)
    check_element(root)
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
    assert [child.tag for child in case] == ["properties", "system-out"]
    assert case.findtext("system-out") == "all good\n"
    assert root.find("testsuite[@timestamp='2026-11-21T10:00:00']") is not None


def test_properties_name_machines_images_and_logs() -> None:
    case = only_case(rendered(record()))
    found = {item.get("name"): item.get("value") for item in case.iter("property")}
    assert found["component.driver.node"] == "m0"
    assert found["component.server.image"] == "server@sha256:2"
    assert found["component.driver.log.main"] == "logs/1/bench-x7-driver/main.log"
    assert found["node.m0"] == "workers, 8 CPU, 32Gi, Debian 13, 6.1.0"
    assert found["metric.p99"] == "1.25 ms"
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
    assert [root.get(name) for name in ("failures", "errors", "skipped")] == [
        str(int(tag == other)) for other in ("failure", "error", "skipped")
    ]


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


def test_empty_suite_is_valid() -> None:
    assert rendered().get("tests") == "0"
    check_element(parse(junit.render([])))


@given(st.text(), st.text(), st.sampled_from(["Passed", "Failed", "Error", "Cancelled", ""]))
def test_any_text_makes_a_valid_document(text: str, name: str, verdict: str) -> None:
    made = record(text, phase="Failed", verdict=verdict, message=text, reason=text)
    rendered(msgspec.structs.replace(made, test_name=name, properties={text: name}))
