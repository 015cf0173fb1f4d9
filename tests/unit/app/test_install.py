"""``grange install``: what is printed, for whom it is right, and what is refused."""

import re
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from grange.api import crds, schema, yaml_documents
from grange.api.kinds import (
    AUDITRECORD,
    BUILT_IN,
    LEASEPOLICY,
    MACHINE,
    MACHINELEASE,
    NAMESPACE,
    NODEPOOL,
    PODDISRUPTIONBUDGET,
    PODGROUP,
    PYTORCHJOB,
    QUEUE,
    TESTSESSION,
    TFJOB,
)
from grange.api.meta import Document
from grange.app import controllers, manager
from grange.app.install import install_manifests, rbac, verb
from grange.app.install.install_manifests import PARTS, InstallPlan, InvalidInstallPlan, documents
from grange.reconcile.farm.config import FarmConfig

IMAGE = "registry.example:5000/grange:0.1.0"
EVERYTHING = InstallPlan(image=IMAGE)
OF_KUBERNETES = {
    *(
        "namespace",
        "garbagecollector",
        "nodelifecycle",
        "disruption",
        "job",
        "cronjob",
        "endpoints",
    ),
}
ROLES = {"Role", "ClusterRole"}


def install(*words: str) -> Result:
    return CliRunner().invoke(verb.command, words)


def found(kind: str, plan: InstallPlan = EVERYTHING, part: str = "") -> list[Document]:
    return [one for one in documents(plan, part) if one["kind"] == kind]


def the(kind: str, plan: InstallPlan = EVERYTHING) -> Document:
    [one] = found(kind, plan)
    return one


def pod() -> Document:
    spec = the("Deployment")["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


# --- what is printed ---------------------------------------------------------------------------


def test_printed_manifest_is_the_one_made_every_time() -> None:
    first, second = install("--image", IMAGE), install("--image", IMAGE)
    assert first.exit_code == 0
    assert first.stdout == second.stdout
    assert [*yaml.load_all(first.stdout, yaml.CSafeLoader)] == documents(EVERYTHING)
    assert "&id" not in first.stdout, "every document stands for itself"


def test_our_own_reader_takes_what_is_printed() -> None:
    """It is stricter than others: no repeated keys, no surprises of YAML."""
    text = install("--image", IMAGE).stdout
    assert [*yaml_documents.load(text)] == documents(EVERYTHING)


@pytest.mark.parametrize("part", PARTS)
def test_printed_parts_add_up_to_the_whole(part: str) -> None:
    alone = install("--only", part, *(["--image", IMAGE] if part == "deployment" else []))
    assert alone.exit_code == 0, alone.output
    assert [*yaml.load_all(alone.stdout, yaml.CSafeLoader)] == documents(EVERYTHING, part)
    together = [document for name in PARTS for document in documents(EVERYTHING, name)]
    assert together == documents(EVERYTHING)


def test_what_others_need_comes_first() -> None:
    """``kubectl apply`` goes through a file from the top."""
    kinds = [one["kind"] for one in documents(EVERYTHING)]
    order = [
        "CustomResourceDefinition",
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Deployment",
    ]
    assert [kinds.index(kind) for kind in order] == sorted(kinds.index(kind) for kind in order)


def test_the_kinds_are_those_that_kubernetes_does_not_know() -> None:
    names = [one["metadata"]["name"] for one in found("CustomResourceDefinition")]
    assert names == [info.qualified for info in crds.installable(BUILT_IN)]


def test_kinds_that_no_client_would_look_at_are_left_out() -> None:
    """Others bring a PodGroup along; a user of only our controllers keeps theirs."""
    plan = InstallPlan(image=IMAGE, controllers=("replication", "rollingupdate"))
    kinds = {one["spec"]["names"]["kind"] for one in found("CustomResourceDefinition", plan)}
    machines = {"NodePool", "Machine", "MachineLease", "LeasePolicy"}  # where nodes come from
    assert kinds == {"ReplicationController", "RollingUpdate", "AuditRecord", *machines}
    assert "podgroups" not in str(documents(plan))
    assert InstallPlan(controllers=("scheduler",)).kinds == [PODGROUP, QUEUE]
    machines_kinds = [PODGROUP, MACHINELEASE, NODEPOOL, MACHINE]
    assert InstallPlan(controllers=("machines",)).kinds == machines_kinds
    sessions = [MACHINELEASE, LEASEPOLICY, TESTSESSION]
    assert InstallPlan(controllers=("testsession",)).kinds == sessions
    assert InstallPlan().kinds == crds.installable(BUILT_IN)


def test_kinds_of_a_training_operator_are_left_to_it() -> None:
    plan = InstallPlan(image=IMAGE, without=("kubeflow",))
    assert plan.kinds == [info for info in InstallPlan().kinds if info.group != "kubeflow.org"]
    assert {TFJOB, PYTORCHJOB} <= {*InstallPlan().kinds}
    assert "kubeflow" not in str(documents(plan))
    assert "tfjobs" in str(documents(EVERYTHING))
    printed = install("--image", IMAGE, "--without", "kubeflow")
    assert [*yaml.load_all(printed.stdout, yaml.CSafeLoader)] == documents(plan)


def test_groups_that_are_not_known_cannot_be_left_out() -> None:
    with pytest.raises(InvalidInstallPlan, match="use one of kubeflow"):
        InstallPlan(without=("x",))
    refused = install("--without", "x")
    assert refused.exit_code != 0
    assert "kubeflow" in refused.output


def test_a_namespace_of_another_owner_is_not_printed() -> None:
    """Deleting what was printed would delete it."""
    plan = InstallPlan(namespace="tools", image=IMAGE)
    assert found("Namespace", plan) == []
    assert the("Namespace")["metadata"]["name"] == install_manifests.NAMESPACE
    places = {one["metadata"].get("namespace", "") for one in documents(plan)}
    assert places == {"", "tools", "kube-system", "kube-node-lease"}
    for binding in (*found("RoleBinding", plan), *found("ClusterRoleBinding", plan)):
        assert [who["namespace"] for who in binding["subjects"]] == ["tools"]


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), r"--image: name the image .* build one .* docs/how-to/kubernetes\.md"),
        (("--only", "deployment"), "--image: name the image"),
        (("--only", "everything"), "'everything' is not one of"),
        (("--replicas", "0", "--image", IMAGE), "0 is not in the range"),
        (("--namespace", "A_b", "--image", IMAGE), "--namespace A_b: must be a lower-case label"),
        (("--image", "a b"), "--image 'a b': .* no blanks"),
        (("--controllers", "namespace", "--only", "rbac"), "--controllers namespace: .* itself"),
        (("--controllers", ",", "--only", "rbac"), "--controllers: name one at least"),
    ],
)
def test_uninstallable_part_is_a_usage_error_with_choices(
    words: tuple[str, ...], message: str
) -> None:
    done = install(*words)
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == click.UsageError.exit_code
    assert re.search(message, " ".join(done.output.split()))
    assert done.stdout == ""


def test_no_image_is_made_up() -> None:
    with pytest.raises(InvalidInstallPlan, match="publishes none"):
        documents(InstallPlan())
    assert documents(InstallPlan(), "crds")
    assert documents(InstallPlan(), "rbac")


# --- permissions ------------------------------------------------------------------------------------


def test_each_controller_has_rights_or_is_left_to_kubernetes() -> None:
    assert {*rbac.CONTROLLERS} | OF_KUBERNETES == {*manager.NAMES}
    assert not {*rbac.CONTROLLERS} & OF_KUBERNETES


def test_no_rule_grants_everything() -> None:
    for role in (*found("ClusterRole"), *found("Role")):
        for rule in role["rules"]:
            words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "*" not in "".join(words)
            assert not {"escalate", "bind", "impersonate"} & {*rule["verbs"]}
            assert not {"serviceaccounts", "nodes/proxy", "pods/exec"} & {*rule["resources"]}
            if "secrets" in rule["resources"]:  # the tokens with which machines join
                assert role["metadata"]["namespace"] == "kube-system"
                assert {*rule["verbs"]} == {"get", "create", "delete"}


def test_no_resource_is_named_by_two_rules_of_a_role() -> None:
    for role in (*found("ClusterRole"), *found("Role")):
        named = [
            (*rule["apiGroups"], *rule["resources"], *rule.get("resourceNames", ()))
            for rule in role["rules"]
        ]
        assert len({*named}) == len(named)


def test_fewer_controllers_have_fewer_rights() -> None:
    def output_of(plan: InstallPlan) -> str:
        return yaml.safe_dump(documents(plan, "rbac"))

    alone = output_of(InstallPlan(controllers=("replication",)))
    assert "pods/binding" not in alone
    assert "pods/binding" in output_of(InstallPlan(controllers=("scheduler",)))
    [role] = [
        one
        for one in found("ClusterRole", InstallPlan(controllers=("scheduler",)), "rbac")
        if one["metadata"]["name"] == "grange-controllers"
    ]
    pods = next(rule for rule in role["rules"] if rule["resources"] == ["pods"])
    assert pods["verbs"] == ["get", "list", "watch", "delete"]


def test_every_role_of_the_controllers_is_bound_to_their_account() -> None:
    account = the("ServiceAccount")["metadata"]
    roles = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"])
        for one in documents(EVERYTHING)
        if one["kind"] in ROLES and "aggregate" not in str(one["metadata"]["labels"])
    }
    bound = set()
    for one in documents(EVERYTHING):
        if one["kind"].endswith("Binding"):
            refers = one["roleRef"]
            bound.add((refers["kind"], one["metadata"].get("namespace", ""), refers["name"]))
            assert one["subjects"] == [
                {
                    "kind": "ServiceAccount",
                    "name": account["name"],
                    "namespace": account["namespace"],
                }
            ]
    assert bound == roles
    assert pod()["serviceAccountName"] == account["name"]


def test_the_farm_finds_its_leases_where_it_may() -> None:
    [role] = [one for one in found("Role") if "configmaps" in str(one["rules"])]
    assert role["metadata"]["namespace"] == FarmConfig(member="a").namespace


def test_cluster_users_may_use_kinds_and_not_forge_audit() -> None:
    view, edit = (one for one in found("ClusterRole") if "aggregate" in str(one["metadata"]))
    assert {rule["resources"][0] for rule in view["rules"]} == {
        info.plural for info in crds.installable(BUILT_IN)
    }
    written = {rule["resources"][0] for rule in edit["rules"]}
    assert not written & {AUDITRECORD.plural, QUEUE.plural, "replicationcontrollers/status"}
    assert "replicationcontrollers/scale" in written
    assert all({*rule["verbs"]} <= {"get", "list", "watch"} for rule in view["rules"])


# --- the deployment ----------------------------------------------------------------------------


def test_pods_are_probed_where_they_listen() -> None:
    [container] = pod()["containers"]
    assert "--metrics-listen=0.0.0.0:10258" in container["args"]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": 10258}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 10258}


def test_pods_are_as_restricted_as_kubernetes_knows_how() -> None:
    """The profile *restricted* of its Pod Security Standards, control by control."""
    spec = pod()
    of_pod = spec["securityContext"]
    assert of_pod["runAsNonRoot"] is True
    assert of_pod["runAsUser"] != 0
    assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC", "volumes", "initContainers"} & {*spec}
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"ports", "lifecycle", "volumeMounts"} & {*container}


def test_only_the_pods_themselves_get_the_token() -> None:
    assert the("ServiceAccount")["automountServiceAccountToken"] is False
    assert pod()["automountServiceAccountToken"] is True


def test_the_program_takes_its_arguments() -> None:
    [container] = pod()["containers"]
    assert container["command"] == ["grange"]
    name, *words = container["args"]
    assert name == "controllers"
    context = controllers.command.make_context(name, words)
    assert context.params["only"].split(",") == [*rbac.CONTROLLERS]
    assert context.params["schedulers"] == (install_manifests.SCHEDULER_NAME,)
    assert context.params["member"] == "$(POD_NAME)"
    assert {item["name"] for item in container["env"]} == {
        "POD_NAME",
        "HOME",
        "GRANGE_ALERT_WEBHOOK",
    }


def test_machines_install_the_package_that_was_asked_for() -> None:
    url = "https://example.com/{tag}/grange-{version}.whl"
    done = install(
        "--image", IMAGE, "--only", "deployment", "--agent-version", "1.2.0", "--agent-url", url
    )
    assert done.exit_code == 0, done.output
    [deployment] = [one for one in yaml.safe_load_all(done.output) if one["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    name, *words = container["args"]
    given = controllers.command.make_context(name, words).params
    assert (given["agent_version"], given["agent_url"]) == ("1.2.0", url)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--agent-version", "1 2"), "agent version '1 2'"),
        (("--agent-url", "https://h/{version}.whl"), "no version to fill in"),
        (
            ("--agent-version", "1.2.0", "--controllers", "replication"),
            "without the controller machines",
        ),
    ],
)
def test_package_that_no_machine_could_install_is_refused(
    words: tuple[str, ...], complaint: str
) -> None:
    done = install("--image", IMAGE, *words)
    assert done.exit_code == 2
    assert complaint in " ".join(done.output.split())


def test_no_scheduler_is_named_where_none_runs() -> None:
    plan = InstallPlan(image=IMAGE, controllers=("replication",))
    [container] = the("Deployment", plan)["spec"]["template"]["spec"]["containers"]
    assert "scheduler" not in " ".join(container["args"])


def test_several_share_the_work_and_stay_apart() -> None:
    deployment = the("Deployment", InstallPlan(image=IMAGE, replicas=3))["spec"]
    assert deployment["replicas"] == 3
    marks = deployment["template"]["metadata"]["labels"]
    budget = the("PodDisruptionBudget")["spec"]
    terms: list[dict[str, Any]] = [
        deployment["selector"],
        budget["selector"],
        pod()["topologySpreadConstraints"][0]["labelSelector"],
        pod()["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0][
            "podAffinityTerm"
        ]["labelSelector"],
    ]
    for selector in terms:
        assert selector["matchLabels"].items() <= marks.items()
    assert budget["maxUnavailable"] == 1, "also with one replica its node can be emptied"


def test_what_our_own_server_knows_it_takes() -> None:
    """Namespace, budget and pods are judged by Kubernetes' own schema there."""
    for kind, info in (("Namespace", NAMESPACE), ("PodDisruptionBudget", PODDISRUPTIONBUDGET)):
        assert schema.check(the(kind), info) == []
    template = the("Deployment")["spec"]["template"]
    assert schema.check_definition(template, "io.k8s.api.core.v1.PodTemplateSpec") == []
