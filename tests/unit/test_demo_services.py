"""The scenario's servers, and that its script, its sites and its report fit together."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import aiosmtplib
import httpx
import pytest

from scripts.demo.screen import Screen
from scripts.demo.services import (
    READER,
    SCRIPT,
    SCRIPTS,
    SITES,
    STEP_OF_THE_FIRST_KILL,
    STEP_OF_THE_NOTICE,
    VENDORS,
    Mail,
    Services,
)
from scripts.demo.summary import Summary
from scripts.demo.temporal_cli import TemporalCli
from scripts.demo.watch import subject
from scripts.model_script import Call, Script, load_scripts


@pytest.fixture
def services() -> Iterator[Services]:
    with Services() as running:
        yield running


@pytest.fixture(scope="module")
def script() -> Script:
    return load_scripts(SCRIPTS, {"sites": "http://sites"})[SCRIPT]


def calls(script: Script, tool: str) -> list[Call]:
    return [call for turn in script.turn for call in turn.calls if call.tool == tool]


class _Text(HTMLParser):
    """A page's text and links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if name == "href" and value]


def vendor_text(vendor: str) -> str:
    return " ".join(" ".join(_Text(page.read_text("utf-8")).text) for page in sorted((SITES / vendor).glob("*.html")))


def test_every_page_that_the_script_fetches_is_served_and_its_links_work(services: Services, script: Script) -> None:
    urls = {call.arguments["url"].replace("http://sites", services.sites_url) for call in calls(script, "fetch")}
    assert urls >= set(services.site_urls)
    assert len(urls) == 3 * len(VENDORS)
    with httpx.Client() as client:
        for url in sorted(urls):
            response = client.get(url)
            assert response.status_code == 200, url
            for link in _Text(response.text).links:
                assert client.get(httpx.URL(url).join(link)).status_code == 200, f"{url}: {link}"
        assert client.get(f"{services.sites_url}/nothing.html").status_code == 404


def test_the_script_has_thirty_steps_and_the_kills_hit_what_they_are_meant_to(script: Script) -> None:
    assert len(script.turn) == 30
    assert {call.tool for call in script.turn[STEP_OF_THE_FIRST_KILL - 1].calls} == {"fetch"}
    assert [call.tool for call in script.turn[STEP_OF_THE_NOTICE - 1].calls] == ["notify"]
    assert len(calls(script, "notify")) == len(calls(script, "send_email")) == 1
    assert calls(script, "send_email")[0].arguments["to"] == READER
    assert not script.turn[-1].calls
    assert "report.md" in script.turn[-1].text


def report_table(report: str, heading: str) -> list[list[str]]:
    lines = report.split(heading)[1].split("\n\n")[1].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_report_says_what_the_sites_say(script: Script) -> None:
    report = next(
        call.arguments["content"] for call in calls(script, "write_file") if call.arguments["path"] == "report.md"
    )
    assert calls(script, "send_email")[0].arguments["body"] == report
    rows = report_table(report, "## At a glance")
    assert len(rows) == len(VENDORS)
    for vendor, (name, *cells) in zip(VENDORS, rows, strict=True):
        text = vendor_text(vendor)
        assert name in text
        for cell in cells:
            fact = re.split(r" per |,", cell)[0]
            assert fact == "none" or fact in text, f"{vendor}: {cell}"


def test_the_sums_of_the_report_are_right(script: Script) -> None:
    report = script.turn[-2].calls[0].arguments["body"]
    rows = report_table(report, "## First-year cost of 100 measuring points")
    totals = []
    hardware_prices = {row[0]: row[2] for row in report_table(report, "## At a glance")}
    for name, hardware, running, total in rows:
        numbers = [
            [float(n) for n in re.findall(r"(?:EUR )?([\d.]+)", cell.replace(",", ""))] for cell in (hardware, running)
        ]
        units, price = numbers[0]
        assert price == units * float(re.findall(r"[\d.]+", hardware_prices[name])[0])
        year = 0.0
        if numbers[1]:
            first, months, rate, year = numbers[1]
            assert first * months * rate == year
        assert total == f"EUR {price + year:,.0f}"
        totals.append(price + year)
    assert totals == sorted(totals)


def test_a_notice_with_the_same_key_counts_once_and_the_hook_hears_it_before_the_answer() -> None:
    seen: list[Any] = []
    with Services(model=False, on_notice=lambda: seen.append(running.notices())) as running, httpx.Client() as client:
        for key in ("a", "a", "b"):
            client.post(running.webhook_url, json={"text": key}, headers={"Idempotency-Key": key}).raise_for_status()
        client.post(running.webhook_url, json={"text": "no key"})
        client.post(running.webhook_url, json={"text": "no key"})
        assert client.post(running.webhook_url, content=b"{").status_code == 400
        assert client.get(running.webhook_url).json() == {"notices": running.notices(), "requests": 5}
    assert [notice["text"] for notice in running.notices()] == ["a", "b", "no key", "no key"]
    assert running.notice_requests() == 5
    assert [len(notices) for notices in seen] == [1, 2, 3, 4]


async def test_the_mail_server_keeps_mails(services: Services) -> None:
    url = httpx.URL(services.smtp_url)
    headers = ["From: agent@example.com", "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Message-ID: <1@x>"]
    text = "\r\n".join([*headers, "", "Hello.", ""])
    await aiosmtplib.send(
        text, sender="agent@example.com", recipients=["a@example.com"], hostname=url.host, port=url.port
    )
    (mail,) = services.mails()
    assert (mail.sender, mail.recipients) == ("agent@example.com", ("a@example.com",))
    assert (mail.message_id, mail.subject, mail.body.strip()) == ("<1@x>", "Grüße", "Hello.")


def test_the_scripted_model_answers_whatever_the_model_is_called(services: Services) -> None:
    request = {
        "model": "gpt-5-mini",
        "messages": [{"role": "user", "content": "Go."}],
        "tools": [{"type": "function", "function": {"name": "list_files"}}],
    }
    with httpx.Client() as client:
        answer = client.post(f"{services.model_url}/chat/completions", json=request).json()
        assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "list_files"
        client.post(f"{services.model_url}/chat/completions", json={**request, "tools": []})
    assert services.model_requests() == {0: 1}
    assert ["does not offer" in reason for reason in services.refused_requests()] == [True]


def test_without_a_model_there_is_no_address_of_one() -> None:
    with Services(model=False) as services:
        assert services.model_requests() == {}
        with pytest.raises(LookupError, match="model=False"):
            _ = services.model_url


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        ({"lines": 50, "path": "plan.md"}, "plan.md"),
        ({"url": "https://example.com/a"}, "example.com/a"),
        ({"pattern": "x"}, "x"),
        ('{"path": "notes/a.md", "content": "# A', "notes/a.md"),
        ('{"text": "begin of a long te', "begin of a long te"),
        ("no JSON", "no JSON"),
        ({}, ""),
        (None, ""),
        ({"text": "\x1b[31mred\nline"}, "[31mred line"),
    ],
)
def test_a_call_is_shown_by_what_it_is_about(arguments: Any, about: str) -> None:
    assert subject(arguments) == about


@pytest.mark.parametrize(
    ("status", "notices", "mails", "requests", "code"),
    [
        ("completed", 1, 1, {0: 1, 17: 2}, 0),
        ("completed", 1, 1, {0: 2, 17: 1}, 1),  # a model request that no kill explains
        ("completed", 1, 1, {0: 1, 17: 3}, 1),
        ("completed", 2, 1, {0: 1}, 1),
        ("completed", 1, 0, {0: 1}, 1),
        ("denied", 1, 1, {0: 1}, 1),
        (None, 1, 1, {0: 1}, 1),
    ],
)
def test_the_demo_is_well_only_when_all_is_exactly_once(
    monkeypatch: pytest.MonkeyPatch, status: str | None, notices: int, mails: int, requests: dict[int, int], code: int
) -> None:
    services = Services()
    monkeypatch.setattr(services, "notices", lambda: [{"text": "n"}] * notices)
    monkeypatch.setattr(services, "notice_requests", lambda: notices)
    monkeypatch.setattr(services, "mails", lambda: [Mail("a", ("b",), "<1>", "s", "b")] * mails)
    monkeypatch.setattr(services, "model_requests", lambda: requests)
    monkeypatch.setattr(services, "refused_requests", list)
    summary = Summary(services, TemporalCli("127.0.0.1:7233", "demo-1"), Path("nowhere"), scripted=True, ours=True)
    result = {"status": status, "output": "done", "artifacts": [{"path": "report.md"}]} if status else None
    assert summary.show(Screen(), result, None if status else "ModelUnavailable: gone") == code
