"""Write src/grange/api/schema/kubernetes.json from Kubernetes' published OpenAPI definitions.

The definitions come from the wheel of ``kubernetes-validate``, which is downloaded into a temporary
directory, checked against its hash and thrown away: it is needed here only, never at run time. Kept
are the definitions that our kinds reach, without descriptions. The same input gives the same bytes.

Usage: ``python scripts/make_schema.py [--wheel FILE]``
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

PACKAGE = "kubernetes-validate==1.37.0"
SHA256 = "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9"
# The release whose behaviour we compare ourselves with (docs/reference/benchmarks.md).
MEMBER = "kubernetes_validate/kubernetes-json-schema/v1.36.0-local/_definitions.json"
TARGET = Path(__file__).parent.parent / "src/grange/api/schema/kubernetes.json"

CORE = "io.k8s.api.core.v1"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
ROOTS = (
    *(
        f"{CORE}.{kind}{suffix}"
        for kind in (
            "ConfigMap",
            "Endpoints",
            "Event",
            "Namespace",
            "Node",
            "Pod",
            "Secret",
            "Service",
            "ServiceAccount",
        )
        for suffix in ("", "List")
    ),
    f"{CORE}.Binding",
    f"{CORE}.PodTemplateSpec",
    "io.k8s.api.authentication.v1.SelfSubjectReview",
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.api.authentication.v1.TokenReview",
    "io.k8s.api.authorization.v1.LocalSubjectAccessReview",
    "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    "io.k8s.api.authorization.v1.SelfSubjectRulesReview",
    "io.k8s.api.authorization.v1.SubjectAccessReview",
    "io.k8s.api.batch.v1.CronJob",
    "io.k8s.api.batch.v1.CronJobList",
    "io.k8s.api.batch.v1.Job",
    "io.k8s.api.batch.v1.JobList",
    "io.k8s.api.certificates.v1.CertificateSigningRequest",
    "io.k8s.api.certificates.v1.CertificateSigningRequestList",
    "io.k8s.api.coordination.v1.Lease",
    "io.k8s.api.coordination.v1.LeaseList",
    "io.k8s.api.discovery.v1.EndpointSlice",
    "io.k8s.api.discovery.v1.EndpointSliceList",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.api.policy.v1.PodDisruptionBudget",
    "io.k8s.api.policy.v1.PodDisruptionBudgetList",
    *(
        f"io.k8s.api.rbac.v1.{kind}{suffix}"
        for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
        for suffix in ("", "List")
    ),
    "io.k8s.api.scheduling.v1.PriorityClass",
    "io.k8s.api.scheduling.v1.PriorityClassList",
    f"{META}.APIGroup",
    f"{META}.APIGroupList",
    f"{META}.APIResourceList",
    f"{META}.APIVersions",
    f"{META}.Condition",
    f"{META}.DeleteOptions",
    f"{META}.LabelSelector",
    f"{META}.Patch",
    f"{META}.Status",
    f"{META}.WatchEvent",
)
KEPT = (
    "additionalProperties",
    "enum",
    "format",
    "items",
    "required",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
)
SPECIAL: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string",
        "type": "string",
    },
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"format": "quantity", "type": "string"},
}


def download(directory: Path) -> Path:
    """The wheel, from the package index that pip is set up for."""
    requirement = directory / "requirements.txt"
    requirement.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
            *("--only-binary", ":all:", "--dest", str(directory), "-r", str(requirement)),
        ],
        check=True,
    )
    return next(directory.glob("*.whl"))


def read(wheel: Path) -> dict[str, Any]:
    """All definitions by name."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != SHA256:
        sys.exit(f"{wheel} has the hash {digest}, not {SHA256}")
    with zipfile.ZipFile(wheel) as archive:
        definitions: dict[str, Any] = json.loads(archive.read(MEMBER))["$defs"]
    return definitions


def compact(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without what only people read; ``[type, null]`` becomes the type."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        kept = {"$ref": f"#/definitions/{name}"}
        kept.update({key: schema[key] for key in KEPT if key in schema})
        return kept
    out: dict[str, Any] = {}
    kind = schema.get("type")
    if kind is not None:
        out["type"] = kind if isinstance(kind, str) else kind[0]
    for key in KEPT:
        if key not in schema:
            continue
        value = schema[key]
        if key in ("items", "additionalProperties"):
            value = compact(value)
        out[key] = value
    if "properties" in schema:
        # Which version and kind a document has is settled by the path it is sent to.
        out["properties"] = {
            name: compact({k: v for k, v in part.items() if k != "enum"})
            if name in ("apiVersion", "kind")
            else compact(part)
            for name, part in sorted(schema["properties"].items())
        }
    return out


def references(schema: object) -> set[str]:
    """Names of the definitions that a schema refers to."""
    found: set[str] = set()
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            found.add(schema["$ref"].rpartition("/")[2])
        for value in schema.values():
            found |= references(value)
    elif isinstance(schema, list):
        for value in schema:
            found |= references(value)
    return found


def select(definitions: dict[str, Any]) -> dict[str, Any]:
    """The definitions that the roots reach, compact and sorted."""
    chosen: dict[str, Any] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in chosen:
            continue
        schema = SPECIAL.get(name) or compact(definitions[name])
        kinds = schema.get("x-kubernetes-group-version-kind")
        if kinds and len(kinds) > 1:
            # Options and statuses belong to every group; one entry is enough to find them.
            schema["x-kubernetes-group-version-kind"] = [
                kind for kind in kinds if kind["group"] == "" and kind["version"] == "v1"
            ]
        chosen[name] = schema
        waiting += references(schema)
    return dict(sorted(chosen.items()))


def main() -> None:
    """Generate the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", type=Path, help="use this copy instead of downloading")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        definitions = read(options.wheel or download(Path(directory)))
    body = json.dumps(
        {"definitions": select(definitions)},
        ensure_ascii=False,
        sort_keys=True,
        separators=(",", ":"),
    )
    TARGET.write_text(body.replace('},"io.k8s.', '},\n"io.k8s.') + "\n")
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
