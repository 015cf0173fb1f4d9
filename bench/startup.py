"""The first minute: help, start, apply to ready, and what an idle control plane costs."""

import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

MANIFEST = Path(__file__).resolve().parent.parent / "examples" / "quickstart" / "web.yaml"
NODES = 3
IDLE_S = 10.0


def grange(*words: str) -> list[str]:
    """The command line."""
    return [str(Path(sys.executable).with_name("grange")), *words]


def help_s() -> float:
    """`grange --help`, best of a few, since the first pays for the disk."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(grange("--help"), check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return min(times)


def free_port() -> int:
    """A port that was free a moment ago."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until_ready(url: str, limit_s: float = 30.0) -> None:
    """Poll /readyz every 5 ms."""
    context = ssl._create_unverified_context()  # noqa: S323  the keys are being made meanwhile
    deadline = time.perf_counter() + limit_s
    while True:
        try:
            with urllib.request.urlopen(f"{url}/readyz", context=context, timeout=1) as answer:  # noqa: S310  our own server
                if answer.status == 200:
                    return
        except (OSError, urllib.error.URLError):
            if time.perf_counter() > deadline:
                raise
        time.sleep(0.005)


def cpu_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no VmRSS for {pid}")


def measure() -> dict[str, float]:
    """One run of the first minute."""
    directory = Path(tempfile.mkdtemp(prefix="grange-bench-"))
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    started = time.perf_counter()
    server = subprocess.Popen(
        grange(
            *("up", "--data-dir", str(directory), "--listen", f"127.0.0.1:{port}"),
            *("--no-switch", "--nodes", str(NODES)),
        ),
        stdout=subprocess.DEVNULL,
    )
    try:
        until_ready(url)
        result = {"help_s": 0.0, "readyz_s": time.perf_counter() - started}
        kubeconfig = directory / "kubeconfig"
        while not kubeconfig.exists():
            time.sleep(0.005)
        time.sleep(2.0)  # nodes register; an idle control plane is what is measured next
        before, at = cpu_s(server.pid), time.perf_counter()
        time.sleep(IDLE_S)
        result["idle_cpu_percent"] = 100 * (cpu_s(server.pid) - before) / (time.perf_counter() - at)
        result["idle_rss_mb"] = rss_mb(server.pid)
        at = time.perf_counter()
        subprocess.run(
            grange("apply", "-f", str(MANIFEST), "--wait", "--kubeconfig", str(kubeconfig)),
            check=True,
            capture_output=True,
        )
        result["ready_s"] = time.perf_counter() - at
        result["help_s"] = help_s()
        return result
    finally:
        server.terminate()
        server.wait(60)
        shutil.rmtree(directory, ignore_errors=True)
