"""A containerd for tests: Debian's, with its own directories and images made from busybox."""

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PAUSE, BUSYBOX = "grange.test/pause:1", "grange.test/busybox:1"
OLD_RUNC = "old-runc"
"""A runtime handler: runc that refuses the action of profiles that version 1.1 brought.

It takes seconds for a container with a variable SLOW_START, and makes a file ``old-runc-slow`` first."""
_PROGRAMS = ("containerd", "ctr", "runc", "busybox")
_LIMIT_S = 240.0
_APPLETS = (
    *("sh", "sleep", "echo", "cat", "printf", "true", "false", "id", "nc", "ls", "test", "env"),
    *(
        "head",
        "wc",
        "mkdir",
        "tail",
        "httpd",
        "wget",
        "dd",
        "hostname",
        "awk",
        "kill",
        "ps",
        "grep",
    ),
)
_CONFIG = """
version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing",
]
[grpc]
  address = "{directory}/containerd.sock"
[ttrpc]
  address = "{directory}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{old}]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{old}.options]
        BinaryName = "{directory}/{old}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{directory}/cni"
"""

_OLD_RUNC = """#!/bin/sh
for word; do
  case "$last" in --log) log="$word" ;; --bundle) bundle="$word" ;; esac
  last="$word"
done
if [ -n "$bundle" ] && grep -q SCMP_ACT_NOTIFY "$bundle/config.json"; then
  message='string SCMP_ACT_NOTIFY is not a valid action for seccomp'
  echo '{"level":"error","msg":"'"$message"'"}' >>"$log"
  exit 1
fi
if [ -n "$bundle" ] && grep -q SLOW_START "$bundle/config.json"; then
  : >"$0-slow"
  sleep 3
fi
exec runc "$@"
"""


def is_possible() -> bool:
    """Whether this machine can run it: as root, with Debian's packages (scripts/setup_cri.sh)."""
    return os.geteuid() == 0 and all(shutil.which(name) for name in _PROGRAMS)


class Containerd:
    """One that runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "containerd.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and import the images."""
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "config.toml"
        config.write_text(_CONFIG.format(directory=self.directory, pause=PAUSE, old=OLD_RUNC))
        old = self.directory / OLD_RUNC
        old.write_text(_OLD_RUNC)
        old.chmod(0o755)
        with (self.directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                ["containerd", "--config", str(config)], stdout=log, stderr=log
            )
        deadline = time.monotonic() + _LIMIT_S
        while self._run("version") != 0:
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError((self.directory / "log").read_text()[-2000:])
            time.sleep(0.05)
        self.add_image(PAUSE, ("/bin/sleep", "2147483647"))
        self.add_image(BUSYBOX, ("/bin/sh",))

    def add_image(self, reference: str, entrypoint: tuple[str, ...]) -> None:
        """Import an image that holds busybox."""
        archive = self.directory / "image.tar"
        archive.write_bytes(image_archive(reference, entrypoint))
        if self._run("images", "import", str(archive)) != 0:
            raise RuntimeError(f"{reference} is not imported")

    def _run(self, *words: str) -> int:
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *words]
        return subprocess.run(command, check=False, capture_output=True).returncode

    def containers(self) -> list[str]:
        """The containers there are, sandboxes included."""
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io"]
        found = subprocess.run(
            [*command, "containers", "list", "--quiet"], check=True, capture_output=True
        )
        return found.stdout.decode().split()

    def stop(self) -> None:
        """End it and all that it has started."""
        if self._process is not None and self._process.poll() is None:
            for container in self.containers():
                self._run("tasks", "delete", "--force", container)
            self._process.terminate()
            self._process.wait(_LIMIT_S)
        for pid in self._shims():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        mounted = Path("/proc/self/mounts").read_text().splitlines()
        for line in reversed(mounted):
            path = line.split()[1]
            if path.startswith(f"{self.directory}/"):
                subprocess.run(["umount", "--lazy", path], check=False, capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _shims(self) -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            with suppress(OSError):
                if name.isdigit():
                    words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
                    if str(self.socket).encode() in words:
                        found.append(int(name))
        return found


@contextmanager
def running(directory: Path) -> Iterator[Containerd]:
    """One that is ended in the end."""
    found = Containerd(directory)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def image_blobs(entrypoint: tuple[str, ...], mark: str = "") -> tuple[bytes, bytes, bytes]:
    """Layer, configuration and manifest of an image that holds busybox.

    Args:
        entrypoint: of the image.
        mark: is in its layer: layers that are the same are pulled once.
    """
    layer_file = io.BytesIO()
    with tarfile.open(fileobj=layer_file, mode="w") as layer:
        for name in ("bin", "tmp", "etc", "proc", "sys", "dev", "root"):
            item = tarfile.TarInfo(name)
            item.type, item.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            layer.addfile(item)
        _add(layer, "bin/busybox", Path(shutil.which("busybox") or "").read_bytes(), 0o755)
        _add(layer, "etc/image", mark.encode())
        _add(layer, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        for name in _APPLETS:
            item = tarfile.TarInfo(f"bin/{name}")
            item.type, item.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(item)
    body = layer_file.getvalue()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin", "FROM_IMAGE=yes"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(body)]},
        }
    ).encode()
    prefix = "application/vnd.oci.image"
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": f"{prefix}.manifest.v1+json",
            "config": _described(f"{prefix}.config.v1+json", config),
            "layers": [_described(f"{prefix}.layer.v1.tar", body)],
        }
    ).encode()
    return body, config, manifest


def image_archive(reference: str, entrypoint: tuple[str, ...]) -> bytes:
    """The image as an archive to import."""
    layer, config, manifest = image_blobs(entrypoint)
    entry = _described("application/vnd.oci.image.manifest.v1+json", manifest)
    entry["annotations"] = {"io.containerd.image.name": reference}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for blob in (layer, config, manifest):
            _add(archive, f"blobs/sha256/{digest(blob).partition(':')[2]}", blob)
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        index = {"schemaVersion": 2, "manifests": [entry]}
        _add(archive, "index.json", json.dumps(index).encode())
    return out.getvalue()


def digest(blob: bytes) -> str:
    """The name of a blob."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _described(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": digest(blob), "size": len(blob)}


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    item = tarfile.TarInfo(name)
    item.size, item.mode = len(content), mode
    archive.addfile(item, io.BytesIO(content))
