"""Commands by the official Python client: ``official_stream.py KUBECONFIG POD CONTAINER``."""

import sys
from contextlib import closing

import kubernetes
from kubernetes.stream import portforward, stream


def main(kubeconfig: str, pod: str, container: str, port: str) -> None:
    kubernetes.config.load_kube_config(kubeconfig)
    with kubernetes.client.ApiClient() as api:
        core = kubernetes.client.CoreV1Api(api)
        open_command = core.connect_get_namespaced_pod_exec
        where = {"container": container, "stdout": True, "stderr": True, "tty": False}
        words = ["sh", "-c", "echo out; echo err >&2"]
        text = stream(open_command, pod, "default", command=words, stdin=False, **where)
        assert sorted(text.split()) == ["err", "out"], text
        shell = stream(
            open_command,
            pod,
            "default",
            command=["sh"],
            stdin=True,
            _preload_content=False,
            **where,
        )
        shell.write_stdin("echo line $((20 + 1))\n")
        assert shell.readline_stdout(timeout=120) == "line 21"
        shell.write_stdin("exit 9\n")
        shell.run_forever(timeout=120)
        assert shell.returncode == 9, shell.returncode
        try:
            stream(open_command, "missing", "default", command=["ls"], stdin=False, **where)
        except kubernetes.client.ApiException as error:
            assert error.status in {0, 404}, error
        else:
            raise AssertionError("a command ran in no pod")
        forward = portforward(
            core.connect_get_namespaced_pod_portforward, pod, "default", ports=port
        )
        with closing(forward.socket(int(port))) as connection:
            connection.setblocking(True)
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert connection.recv(1024).startswith(b"HTTP/1.0 200")
        closed = portforward(
            core.connect_get_namespaced_pod_portforward, pod, "default", ports="99"
        )
        with closing(closed.socket(99)) as connection:
            connection.setblocking(True)
            assert connection.recv(1024) == b""
        assert "port 99: nothing in the pod listens on it" in closed.error(99), closed.error(99)
    print("ok")


main(*sys.argv[1:])
