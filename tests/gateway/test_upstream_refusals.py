"""A refusal that is the client's own fault passes at once; one that is not goes to the next candidate."""

import logging
from collections.abc import Callable

import pytest

from gateway.errors import (
    ApiError,
    ContextLengthExceeded,
    InvalidRequestError,
    OverloadedError,
    UpstreamError,
)
from gateway.upstream.attempts import Deployment
from gateway.upstream.types import Outbound, Reply
from tests.support.attempts import House, error_of


@pytest.mark.anyio
@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_the_clients_own_faults_pass_at_once(house: House, status: int) -> None:
    served = await house.ask(house.deployment(str(status), retries=3), house.deployment("ok"))
    assert served.reply.status == status
    assert error_of(served)["param"] == "messages"
    assert error_of(served)["code"] == f"code_{status}"
    assert house.sent(str(status)) == 1
    assert house.sent("ok") == 0
    assert (served.record.status, served.record.http_status) == ("error", status)
    assert house.books.closed == [served.record]


@pytest.mark.anyio
async def test_our_bad_credential_is_not_the_clients_business(house: House) -> None:
    with pytest.raises(UpstreamError) as raised:
        await house.ask(house.deployment("401", retries=2), house.deployment("403"))
    assert house.sent("401") == house.sent("403") == 1
    assert raised.value.status == 502
    assert b"sk-" not in raised.value.encode()


class Local:
    """A backend of our own that refuses, or breaks by a bug."""

    name = "local"

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    async def send(self, outbound: Outbound) -> Reply:
        raise self._error()

    async def aclose(self) -> None: ...


@pytest.mark.anyio
async def test_what_one_backend_can_not_serve_another_may(house: House) -> None:
    small = Deployment("small", Local(lambda: ContextLengthExceeded("too long", param="messages")), "small")
    assert (await house.ask(small, house.deployment("ok"))).deployment.model == "our-ok"
    with pytest.raises(ContextLengthExceeded) as raised:
        await house.ask(small)
    assert isinstance(raised.value, ApiError)
    assert raised.value.param == "messages"
    assert house.books.closed[-1].error_code == "context_length_exceeded"
    assert not small.breaker.is_open


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "severity"), [(InvalidRequestError("no", param="n"), "INFO"), (OverloadedError("full"), "WARNING")]
)
async def test_only_what_is_not_the_clients_own_mistake_is_worth_a_warning(
    house: House, caplog: pytest.LogCaptureFixture, error: ApiError, severity: str
) -> None:
    caplog.set_level(logging.INFO, "tollhouse.upstream")
    with pytest.raises(type(error)):
        await house.ask(Deployment("small", Local(lambda: error), "small"))
    assert [record.levelname for record in caplog.records] == [severity]


@pytest.mark.anyio
async def test_a_bug_is_not_hidden_by_a_fallback(house: House) -> None:
    broken = Deployment("broken", Local(lambda: ZeroDivisionError("oops")), "broken")
    with pytest.raises(ZeroDivisionError):
        await house.ask(broken, house.deployment("ok"))
    assert [record.error_code for record in house.books.closed] == ["internal_error"]
