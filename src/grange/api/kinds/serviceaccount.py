"""ServiceAccount: who a pod's programs are to the API server."""

from grange.api.fields import lookup
from grange.api.meta import Document, Resource
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo

DEFAULT = "default"
"""The account of pods that name none; every namespace has it."""

ROOT_CA = "kube-root-ca.crt"
"""The ConfigMap with the certificate of the API server's authority; every namespace has it."""

MOUNTED_TOKEN_S = 3607
"""The life that mounted tokens ask for; as in Kubernetes such a token is good for a year."""


class ServiceAccount(Resource, frozen=True):
    """A service account; its tokens are signed on request, not stored."""

    automount_service_account_token: bool | None = None


def _secrets(document: Document, now: float) -> cells.Cell:
    return len(lookup(document, "secrets") or ())


SERVICEACCOUNT = KindInfo(
    group="",
    version="v1",
    kind="ServiceAccount",
    plural="serviceaccounts",
    view=ServiceAccount,
    schema="io.k8s.api.core.v1.ServiceAccount",
    short_names=("sa",),
    has_status=False,
    subresources=("token",),
    columns=(Column("Secrets", _secrets, type="integer", description="Secrets that it names."),),
    returns_deleted=True,
)
