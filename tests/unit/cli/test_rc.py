"""``grange rc``: what is made of words and files, and what documents look like on a page."""

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from grange.api.codec import convert
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document
from grange.api.selectors import Labels, SelectorError
from grange.cli import manifests, name_args
from grange.cli.confirm import NotConfirmed, confirm
from grange.cli.verbs.rc import create, nodes, objects, rollout, status
from grange.cli.verbs.rc.group import VERBS, command

SPEC: Document = {"containers": [{"name": "a", "command": ["a"]}]}


@pytest.mark.parametrize(
    "text", ["", "disk=ssd", "disk=ssd,zone in (a,b)", "!gpu,disk", "a!=b", "a=b,a=c"]
)
def test_node_selector_means_what_was_written(text: str) -> None:
    assert str(Labels.of(create.node_selector(text))) == str(Labels.parse(text)) or {
        str(item) for item in Labels.of(create.node_selector(text)).requirements
    } == {str(item) for item in Labels.parse(text).requirements}


def test_node_selector_that_is_none_is_refused() -> None:
    with pytest.raises(SelectorError):
        create.node_selector("a in")


def test_pairs_are_read_and_others_refused_by_option() -> None:
    assert create.pairs("--label", ("a=b", "c=")) == {"a": "b", "c": ""}
    with pytest.raises(click.UsageError, match="--label x: write KEY=VALUE"):
        create.pairs("--label", ("x",))


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": SPEC},
        {"metadata": {"labels": {"a": "b"}}, "spec": SPEC},
        {"kind": "PodTemplate", "template": {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}},
        {
            "kind": "ReplicationController",
            "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}},
        },
    ],
)
def test_template_is_found_in_whatever_holds_one(document: Document) -> None:
    assert objects.template_of("f", document) == {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}


@pytest.mark.parametrize(
    ("document", "reported"),
    [
        ({"kind": "Service", "spec": {}}, "no pod template"),
        ({"kind": "Pod"}, "spec is missing"),
        ({"kind": "ReplicationController", "spec": {}}, "spec.template is missing"),
    ],
)
def test_file_without_a_template_is_refused_by_name(document: Document, reported: str) -> None:
    with pytest.raises(manifests.ManifestError, match=f"f: .*{reported}"):
        objects.template_of("f", document)


def test_one_document_is_meant(tmp_path: Path) -> None:
    two = tmp_path / "two.yaml"
    two.write_text("kind: Pod\n---\nb: 2\n")
    reported = r"2 documents where one is meant \(Pod, no kind\); put it into a separate file"
    with pytest.raises(manifests.ManifestError, match=reported):
        manifests.read_one(str(two))


def test_nothing_is_done_where_none_can_be_asked() -> None:
    """The test's standard input is no terminal."""
    confirm("Really?", yes=True)
    with pytest.raises(NotConfirmed, match="--yes"):
        confirm("Really?", yes=False)


def test_every_verb_can_be_imported_and_has_a_summary() -> None:
    for name in VERBS:
        shown = CliRunner().invoke(command, [name, "--help"])
        assert shown.exit_code == 0, shown.output
        assert shown.output.startswith("Usage: rc"), shown.output


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ("lock-transfers web --for -5s", "--for -5s: give more than 0s"),
        ("pause-transfers web --for 0", "--for 0: give more than 0s"),
        ("pause-transfers web --for 99999999h", "8760h at most"),
        ("lock-transfers web --for inf", "'inf' is no duration"),
        ("create web --node-selector a~b -- sleep 9", "--node-selector: label selector"),
        ("create web -o wide -- sleep 9", 'no output format "wide" here; there are: json'),
        ("scale web --replicas 1 -o tabel", 'unknown output format "tabel"'),
        ("status ''", "the name is empty; give the name of a ReplicationController"),
        ("get web grc/", "the name is empty; give the name of a ReplicationController"),
        ("enable po/web", "po/web: not a ReplicationController; give the name of one"),
        ("drain-node web ''", "the name is empty; give the name of a Node"),
        ("remove-pod grc/web", "not a Pod; give the name of one"),
        ("rollout start web --from '' --desired 1 --minimum 0", "give the name of a Replication"),
        ("rollout start web --from grc/web --desired 1 --minimum 0", "to itself"),
    ],
)
def test_usage_errors_come_before_any_change(words: str, reported: str) -> None:
    outcome = CliRunner().invoke(command, shlex.split(words), obj=object())
    assert (outcome.exit_code, reported in outcome.output) == (2, True), outcome.output


def test_a_name_is_taken_in_every_form_in_which_it_is_printed() -> None:
    for word in ("web", "grc/web", "replicationcontroller.grange.dev/web", "GRC/web"):
        assert name_args.name_of(REPLICATIONCONTROLLER, word) == "web"


def rolling(**facts: object) -> Document:
    state = {"phase": "Progressing", "revision": 2, **facts}
    return {
        "kind": "ReplicationController",
        "metadata": {"name": "web", "generation": 3},
        "spec": {"replicas": 4},
        "status": {"observedGeneration": 3, "updatedReplicas": 2, "rollout": state},
    }


def test_rollout_is_done_when_all_pods_are_of_its_template() -> None:
    assert rollout.within_done(rolling()).text == "Progressing, 2 of 4 updated"
    done = rolling(phase="Complete")
    assert not rollout.within_done(done).done, "the status is of before the last change"
    short = {"type": "Reconciled", "status": "False", "message": "2 have no node"}
    done["status"]["conditions"] = [short]
    assert rollout.within_done(done).text == "Complete, 2 of 4 updated (2 have no node)"
    done["status"]["updatedReplicas"] = 4
    assert not rollout.within_done(done).done, "none of them is ready"
    done["status"] |= {"replicas": 4, "readyReplicas": 4, "availableReplicas": 4}
    assert rollout.within_done(done).done
    done["metadata"]["generation"] = 4
    assert rollout.within_done(done).text == "waiting for the controller"
    held = rolling(phase="Paused")
    held["spec"]["rollout"] = {"paused": True}
    assert rollout.within_done(held).text == "Paused, 2 of 4 updated"
    waits = rollout.within_done(rolling(phase="Waiting")).text
    assert waits.endswith("the canaries are there; raise or remove spec.rollout.canary to go on")
    failed = rollout.within_done(rolling(phase="Failed", message="no progress for 600 s"))
    assert failed.failed
    assert "no progress" in failed.text
    assert not rollout.within_done(None).done


def test_page_shows_who_owns_it_and_what_is_wrong() -> None:
    found = rolling(phase="Failed", message="stuck")
    found["metadata"]["annotations"] = {"grange.dev/owner": "host-1_abc/7"}
    found["status"]["nodeTransfers"] = [
        {"old": "a", "oldPod": "web-a", "new": "b", "phase": "Starting"}
    ]
    facts = status.summary(found, now=datetime(2026, 1, 1, tzinfo=UTC))
    assert facts["Owner"] == "host-1", "whose session it is may not be seen"
    assert facts["Node transfers"] == "web-a from a to b, Starting"
    assert facts["Rollout"] == "Failed, revision 2: stuck"
    assert facts["Protected"] == "no"
    assert status.conditions(found) == ["No conditions yet: no controller has looked at it."]


@pytest.mark.parametrize(
    ("count", "shrink", "asked"),
    [
        (1, False, "Move 1 pod of web off vm-2?"),
        (2, False, "Move 2 pods of web off vm-2?"),
        (1, True, "Remove 1 pod of web from vm-2 for good?"),
        (2, True, "Remove 2 pods of web from vm-2 for good?"),
    ],
)
def test_leaving_a_node_is_asked_for_in_words_that_count(
    *, count: int, shrink: bool, asked: str
) -> None:
    assert nodes.question("web", "vm-2", count, shrink=shrink) == asked


@pytest.mark.parametrize(
    ("count", "asked"), [(1, "Replace the pod of web?"), (2, "Replace the 2 pods of web?")]
)
def test_replacing_pods_is_asked_for_in_words_that_count(count: int, asked: str) -> None:
    spec = {"replicas": count, "template": {"spec": SPEC}}
    seen = convert({"metadata": {"name": "web"}, "spec": spec}, ReplicationController)
    with pytest.raises(NotConfirmed, match=re.escape(asked)):
        objects.confirm_replacing(seen, yes=False)
    objects.confirm_replacing(seen, yes=True)
    none = {"metadata": {"name": "web"}, "spec": {**spec, "replicas": 0}}
    objects.confirm_replacing(convert(none, ReplicationController), yes=False)
