"""The official Python client inside a pod: by the files of the account, and by its kubeconfig."""

import os
from pathlib import Path

import kubernetes
from kubernetes.config.incluster_config import InClusterConfigLoader


def check() -> None:
    with kubernetes.client.ApiClient() as api:
        review = kubernetes.client.AuthenticationV1Api(api).create_self_subject_review({})
        assert review.status.user_info.username == "system:serviceaccount:default:default", review
        try:
            kubernetes.client.CoreV1Api(api).list_namespaced_secret("default")
        except kubernetes.client.ApiException as error:
            assert error.status == 403, error
        else:
            raise AssertionError("an account without rights reads secrets")


account = Path(os.environ["GRANGE_SERVICE_ACCOUNT"])
assert (account / "namespace").read_text() == "default"
mounted = Path("var/run/secrets/kubernetes.io/serviceaccount")
assert (mounted / "token").read_text() == (account / "token").read_text()
InClusterConfigLoader(
    token_filename=str(account / "token"), cert_filename=str(account / "ca.crt")
).load_and_set()
check()
kubernetes.config.load_config()  # finds KUBECONFIG
check()
