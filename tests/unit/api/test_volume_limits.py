"""``sizeLimit`` of emptyDir: the node reads it, so it is judged before a pod is stored."""

import pytest
from tests.unit.api.documents import pod

from grange.api.kinds import POD
from grange.api.validation import validate


@pytest.mark.parametrize("size", ["much", "5 apples", "-1", -1])
def test_size_limit_is_a_quantity_that_is_not_negative(size: object) -> None:
    document = pod(volumes=[{"name": "a", "emptyDir": {"sizeLimit": size}}])
    assert [cause.field for cause in validate(document, None, POD)] == [
        "spec.volumes[0].emptyDir.sizeLimit"
    ]


@pytest.mark.parametrize("size", ["1Gi", "0", 1024])
def test_right_size_limits_have_no_faults(size: object) -> None:
    document = pod(volumes=[{"name": "a", "emptyDir": {"sizeLimit": size}}])
    assert not validate(document, None, POD)
