"""Which failures of a read another try cannot mend."""

import httpx
import pytest
from temporalio.exceptions import ApplicationError

from activities.execution import lasting


def refused(status: int) -> Exception:
    request = httpx.Request("GET", "http://crm.example")
    return httpx.HTTPStatusError("refused", request=request, response=httpx.Response(status, request=request))


@pytest.mark.parametrize(
    ("error", "lasts"),
    [
        *((refused(status), True) for status in (400, 401, 403, 404, 410, 422)),
        *((refused(status), False) for status in (408, 409, 425, 429, 500, 503)),
        (ApplicationError("no", non_retryable=True), True),
        (ApplicationError("not yet"), False),
        (RuntimeError("broken"), False),
    ],
)
def test_a_refusal_and_a_final_failure_last(error: Exception, lasts: bool) -> None:
    assert lasting(error) is lasts
