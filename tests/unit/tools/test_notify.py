"""Notices to a webhook."""

from __future__ import annotations

import pytest

from activities.tools import ToolError
from activities.tools.web import notify
from tests.unit.tools.test_web import Site, operation, page, site

__all__ = ["site"]


async def test_a_notice_carries_the_idempotency_key(site: Site) -> None:
    site.answers["/hook"] = page(b"ok")
    op = operation(credentials={"notify": site.url + "/hook"}, idempotency_key="key-1")
    assert await notify(text="done", op=op) == "sent"
    [(_, asked)] = site.asked
    assert (asked["Idempotency-Key"], asked["body"]) == ("key-1", {"text": "done"})


@pytest.mark.parametrize(
    ("status", "kind"), [(404, ToolError), (302, ToolError), (429, ConnectionError), (503, ConnectionError)]
)
async def test_a_refused_notice_says_whose_fault_it_is_without_the_url(
    site: Site, status: int, kind: type[Exception]
) -> None:
    site.answers["/hook-s3cret"] = page(b"", status=status, Location="/hook-s3cret")
    op = operation(credentials={"notify": site.url + "/hook-s3cret"})
    with pytest.raises(kind, match=str(status)) as caught:
        await notify(text="done", op=op)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/s3cret", "http://s3cret:x/", "s3cret", "http://[s3cret/"])
async def test_a_dead_webhook_does_not_leak_its_url(url: str) -> None:
    with pytest.raises((ToolError, ConnectionError)) as caught:
        await notify(text="done", op=operation(credentials={"notify": url}))
    error: BaseException | None = caught.value
    while error:
        assert "s3cret" not in str(error)
        error = error.__cause__ or error.__context__
