"""``grange farm status``: members and alerts as their Leases show them."""

from collections import Counter
from datetime import UTC, datetime

import msgspec
import pytest

from grange.api.farm_protocol import FARMS_ANNOTATION, GROUP_LABEL, REPORT_ANNOTATION
from grange.api.meta import Document
from grange.cli import farm_members
from grange.cli.verbs import farm

NOW = datetime(2026, 11, 21, 12, 0, 20, tzinfo=UTC)
ALERT = {"about": "farm/x", "reason": "no_objects_found", "message": "all\ngone", "urgency": "high"}


def lease(
    holder: str = "a_x1", renewed: str = "2026-11-21T12:00:10Z", report: str = ""
) -> Document:
    return {
        "metadata": {
            "name": "grange-a",
            "labels": {GROUP_LABEL: "grange"},
            "annotations": {FARMS_ANNOTATION: "{}", REPORT_ANNOTATION: report},
        },
        "spec": {
            "holderIdentity": holder,
            "leaseTransitions": 3,
            "leaseDurationSeconds": 15,
            "renewTime": renewed,
        },
    }


@pytest.mark.parametrize(
    ("document", "state"),
    [
        (lease(), "Active"),
        (lease(renewed="2026-11-21T12:00:00Z"), "Silent"),
        (lease(holder=""), "Left"),
    ],
)
def test_state_of_a_member_is_one_word(document: Document, state: str) -> None:
    member = farm_members.member(document, NOW)
    assert (member.name, member.state) == ("a", state)
    assert member.session == ("" if state == "Left" else "a_x1/3")


@pytest.mark.parametrize("report", ["", "{", "[]", '{"alerts": 3}', '{"alerts": [7]}'])
def test_a_report_that_a_user_spoiled_shows_of_no_alerts(report: str) -> None:
    assert farm_members.member(lease(report=report), NOW).alerts == []


def test_alerts_are_shown_once_and_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    report = msgspec.json.encode({"owns": {}, "alerts": [ALERT]}).decode()
    members = [farm_members.member(lease(report=report), NOW) for _ in range(2)]
    farm._show(members, Counter(replication=2))
    lines = capsys.readouterr().out.splitlines()
    assert sum("no_objects_found" in line for line in lines) == 1
    assert "all gone" in lines[-1]
    assert any(line.startswith("unowned") and " 2 " in line for line in lines)


def test_a_farm_without_members_shows_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    farm._show([], Counter())
    assert "grange up" in capsys.readouterr().out
