"""Debian's nginx as a server behind a Service, and as a reverse proxy to compare with; wrk asks.

All of it is on this computer, so what is compared are the three ways to the same server.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.agents import LIMIT_S, Api, until_reached
from bench.startup import cpu_s, free_port

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
NGINX, WRK = (shutil.which(name, path=PATH) for name in ("nginx", "wrk"))
SECONDS, CONNECTIONS = 4, 16
_UNITS_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_CONFIGURATION = """
daemon off; worker_processes 1; pid {place}/pid; error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {place}/a; proxy_temp_path {place}/b; fastcgi_temp_path {place}/c;
  uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;
  {more}
}}
"""
_SERVER = 'server {{ listen {address}; location / {{ return 200 "ok"; }} }}'
_PROXY = """
  upstream pods {{ server {target}; keepalive 64; keepalive_requests 1000000; }}
  server {{
    listen {address};
    location / {{ proxy_pass http://pods; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
"""


def configuration(place: str, more: str) -> str:
    """A configuration of nginx that writes below one directory."""
    return _CONFIGURATION.format(place=place, more=more)


def pod() -> dict[str, Any]:
    """nginx as an ordinary server on the pod's address."""
    written = configuration("$PWD", _SERVER.format(address="$POD_IP:8080"))
    script = f'cat >nginx.conf <<END\n{written}\nEND\nexec {NGINX} -e stderr -c "$PWD/nginx.conf"'
    container = {
        "name": "main",
        "command": ["sh", "-c", script],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "nginx", "labels": {"app": "nginx"}},
        "spec": {"containers": [container]},
    }


SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "nginx"},
    "spec": {"selector": {"app": "nginx"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


@contextmanager
def reverse_proxy(target: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """nginx as a reverse proxy of a server; its address."""
    address = "127.0.0.1", free_port()
    with tempfile.TemporaryDirectory(prefix="grange-bench-") as place:
        more = _PROXY.format(target="{}:{}".format(*target), address="{}:{}".format(*address))
        file = Path(place, "nginx.conf")
        file.write_text(configuration(place, more))
        started = subprocess.Popen([str(NGINX), "-e", "stderr", "-c", str(file)])
        try:
            until_reached(address)
            yield address
        finally:
            started.terminate()
            started.wait(LIMIT_S)


def asked(address: tuple[str, int]) -> tuple[float, float]:
    """Requests a second, and the median of a request in milliseconds."""
    url = "http://{}:{}/".format(*address)
    words = [str(WRK), "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency", url]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", shown)
    median = re.search(r"50%\s+([\d.]+)(us|ms|s)", shown)
    if rate is None or median is None or "Non-2xx" in shown:
        raise RuntimeError(f"wrk could not ask {url}:\n{shown}")
    return float(rate[1]), float(median[1]) * _UNITS_MS[median[2]]


def measure(api: Api, proxy_pid: int) -> dict[str, float]:
    """The three ways in turn; nothing where nginx or wrk is missing.

    Args:
        api: of a control plane that runs.
        proxy_pid: the process of its proxy.
    """
    if NGINX is None or WRK is None:
        return {}
    api.ask("/api/v1/namespaces/default/services", SERVICE)
    api.ask("/api/v1/namespaces/default/pods", pod())
    api.until_condition("/api/v1/namespaces/default/pods/nginx")
    found = api.ask("/api/v1/namespaces/default/pods/nginx")
    service = api.ask("/api/v1/namespaces/default/services/nginx")
    direct = str(found["status"]["podIP"]), 8080
    proxied = str(service["spec"]["clusterIP"]), 80
    until_reached(proxied)
    result: dict[str, float] = {}
    with reverse_proxy(direct) as peer:
        for name, address in (("direct", direct), ("service", proxied), ("nginx", peer)):
            before = cpu_s(proxy_pid)
            rate, median = asked(address)
            result |= {f"{name}_requests": rate, f"{name}_request_ms": median}
            if name == "service":
                result["request_cpu_us"] = 1e6 * (cpu_s(proxy_pid) - before) / (rate * SECONDS)
    return result
