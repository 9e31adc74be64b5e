"""What a run came to: the report, and that everything outside happened exactly once."""

from pathlib import Path
from typing import Any

from scripts.demo.screen import Screen, clean
from scripts.demo.services import STEP_OF_THE_FIRST_KILL, Services
from scripts.demo.temporal_cli import TemporalCli, short


class Summary:
    """Counts and shows. `ours`: the shipped goal was played, which ends with one notice and one mail."""

    def __init__(self, services: Services, cli: TemporalCli, state: Path, *, scripted: bool, ours: bool) -> None:
        self._services = services
        self._cli = cli
        self._state = state
        self._expected = scripted or ours
        self._scripted = scripted

    def show(self, screen: Screen, result: dict[str, Any] | None, failure: str | None) -> int:
        """Show the outcome; returns the exit code."""
        status = "failed" if result is None else str(result.get("status"))
        good = status == "completed"
        screen.title(f"The run {status}" if result is None else f"The run ended: {status}")
        if failure or (result and result.get("reason")):
            screen.say(f"  {clean(failure or (result or {}).get('reason'), 2000)}", style="red")
        if result and result.get("output"):
            for line in str(result["output"]).splitlines():
                screen.say(f"  {clean(line, 500)}")
        self._show_files(screen, result or {})
        if self._scripted:
            good &= self._show_model(screen)
        good &= self._show_counts(screen)
        return 0 if good else 1

    def show_where_to_look(self, screen: Screen, url: str) -> None:
        """The lines with which a person looks at the run."""
        screen.title("Look at it")
        for command in (
            self._cli.look("show"),
            self._cli.look("describe"),
            self._cli.look("query", "--type", "transcript"),
            self._cli.look("query", "--type", "effects"),
        ):
            screen.say(f"  {self._cli.line(*command)}")
        screen.say(f"  {url}")
        screen.say(
            "  while the services are up, as they are with ./scripts/run --keep; for the history alone, first start"
        )
        screen.say(f"  {self._cli.server(self._state / 'temporal.db')}")

    def _show_files(self, screen: Screen, result: dict[str, Any]) -> None:
        artifacts = result.get("artifacts") or []
        folders = sorted((self._state / "workspaces").glob(f"{self._cli.workflow_id}.*"))
        for artifact in artifacts if isinstance(artifacts, list) else artifacts.get("last") or []:
            where = [folder / artifact["path"] for folder in folders if (folder / artifact["path"]).exists()]
            label = "report" if artifact["path"] == "report.md" else "file  "
            screen.say(f"  {label}  {short(where[0]) if where else artifact['path']}")

    def _show_model(self, screen: Screen) -> bool:
        """Requests to the model; whether each one beyond the first of a step is the kill's."""
        requests = self._services.model_requests()
        again = {index + 1: count - 1 for index, count in sorted(requests.items()) if count > 1}
        screen.say(f"  model requests: {sum(requests.values())} for {len(requests)} steps")
        explained = True
        for step, extra in again.items():
            why = "the one in flight when the worker was killed" if step == STEP_OF_THE_FIRST_KILL else "not explained"
            explained &= step == STEP_OF_THE_FIRST_KILL and extra == 1
            screen.say(f"    step {step}: {extra} more, {why}")
        for reason in self._services.refused_requests():
            screen.say(f"    refused: {clean(reason, 500)}", style="red")
        return explained

    def _show_counts(self, screen: Screen) -> bool:
        """Notices and mails; whether there is exactly one of each, where the goal asks for them."""
        notices, mails = self._services.notices(), self._services.mails()
        sent = self._services.notice_requests()
        screen.say(f"  notices received: {len(notices)}" + (f" (sent {sent} times, under one key)" if sent > 1 else ""))
        for notice in notices:
            screen.say(f"    {clean(notice.get('text') if isinstance(notice, dict) else notice)}")
        screen.say(f"  mails received: {len(mails)}")
        for mail in mails:
            screen.say(f"    {clean(mail.subject)}, to {clean(', '.join(mail.recipients))}, {clean(mail.message_id)}")
        good = not self._expected or (len(notices) == 1 and len(mails) == 1)
        if not good:
            screen.say("  exactly one notice and one mail were to arrive", style="red")
        return good
