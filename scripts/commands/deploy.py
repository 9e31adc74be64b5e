"""`perdure deploy`: a new build takes over, and no run is left behind without a word."""

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities.durations import seconds
from scripts.commands.running import DONE, NO, Refused, run
from workers.builds import build_id, check_build_id
from workers.causes import Seen, remedy
from workers.client import connect, converter_of
from workers.deployments import Polls, current_build, left_behind, polls, set_current, to_tell, versions, without_news
from workers.open_runs import POLL_SECONDS, Queues, listed
from workers.replaying import Replayed, histories_of, replay
from workers.settings import Settings, home, read_settings

LOOK_EVERY = 1.0


def deploy(
    build: Annotated[str, typer.Option("--build-id", help="default: PERDURE_BUILD_ID, or of this code")] = "",
    start: Annotated[bool, typer.Option("--start", help="start a worker of the build here, in the background")] = False,
    check: Annotated[bool, typer.Option("--check", help="only replay the open runs with this code")] = False,
    show: Annotated[bool, typer.Option("--show", help="only show which build has which runs and workers")] = False,
    force: Annotated[bool, typer.Option("--force", help="go on though open runs do not replay with this code")] = False,
    wait: Annotated[str, typer.Option(help="how long to wait for workers, and for runs to move")] = "90s",
    as_json: Annotated[bool, typer.Option("--json", help="JSON")] = False,
) -> None:
    """Check a build against the open runs, make it current, and move the idle runs to it.

    Runs at work move by themselves at their next turn. Keep the old workers until it says that none of their runs is
    left. Exit code 1 when open runs do not replay, no worker of the build polls, or a run has no worker.
    """
    try:
        patience = seconds(wait)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--wait") from None
    run(_Deploy(read_settings(), build, patience, as_json).go(start=start, check=check, show=show, force=force))


class _Deploy:
    """One call of the command."""

    def __init__(self, settings: Settings, build: str, patience: float, as_json: bool) -> None:
        self.settings, self.patience, self.as_json = settings, patience, as_json
        self.build = build or settings.build_id or build_id()
        self.report: dict[str, Any] = {"build_id": self.build}
        self.console = Console(emoji=False, soft_wrap=True, stderr=as_json)

    async def go(self, *, start: bool, check: bool, show: bool, force: bool) -> int:
        """The steps in order."""
        if not show:
            check_build_id(self.build)
        client = await connect(self.settings)
        before = await polls(client, self.settings, self.build)
        if await current_build(client) == self.build:  # it has the work already
            before = {}
        code = DONE
        if not show:
            faults = await self._check(client)
            code = NO if faults else DONE
            if faults and not force and not check:
                raise Refused(
                    f"{len(faults)} open runs do not replay with this code, and nothing was changed: put what changed "
                    "behind workflow.patched (docs/deployments.md), or say --force, if each of them will roll over "
                    "from its own build before that is stopped"
                )
        if not show and not check:
            code = await self._switch(client, start, before)
        if not check:
            code = max(code, await self._show(client))
        if self.as_json:
            print(json.dumps(self.report, ensure_ascii=False, indent=1))
        return code

    def say(self, text: str) -> None:
        """A line for people."""
        self.console.print(text, markup=False, highlight=False)

    async def _runs(self, client: Client) -> list[Seen]:
        """The open runs of this installation, each with the build that it goes on with."""
        queues, queue = Queues(client), self.settings.task_queue
        await queues.look([queue])
        return [queues.placed(seen) async for seen in listed(client) if seen.queue == queue]

    async def _check(self, client: Client) -> list[Replayed]:
        runs = await self._runs(client)
        converter = converter_of(self.settings, worker=True)
        histories = histories_of(client, [(seen.workflow_id, seen.run_id) for seen in runs])
        faults = [one async for one in replay(histories, converter) if one.fault is not None]
        self.say(f"checked: {len(runs)} open runs replayed with this code, {len(faults)} of them do not fit")
        for one in faults:
            self.say(f"  {one.workflow_id}: {one.fault}")
        self.report["checked"] = len(runs)
        self.report["faults"] = [{"workflow_id": one.workflow_id, "fault": one.fault} for one in faults]
        return faults

    async def _switch(self, client: Client, start: bool, before: Polls) -> int:
        if lost := await left_behind(client, self.settings, self.build):
            raise Refused(
                f"the workers that serve {', '.join(map(repr, lost))} now would get nothing any more, and build "
                f"{self.build} has none there: new runs would wait for ever. Nothing was changed. The current build is "
                f"one for all installations of a namespace: start workers of build {self.build} there too, or stop "
                "those that are there, and "
                f"try again {POLL_SECONDS:.0f} s later"
            )
        if start:
            self._start()
        await self._workers_are_there(client, before)
        await set_current(client, self.build)
        self.say(f"current: build {self.build}; new runs go to it")
        told: set[str] = set()
        end = asyncio.get_running_loop().time() + self.patience
        while left := await self._move(client, told):
            if asyncio.get_running_loop().time() > end:
                self.say(f"{left} runs are still on other builds; they move at their next turn or rollover")
                break
            await asyncio.sleep(LOOK_EVERY)
        self.report["told"] = sorted(told)
        return DONE

    def _start(self) -> None:
        """A worker of this checkout that outlives the command."""
        home().mkdir(parents=True, exist_ok=True)
        path = home() / f"worker-{self.build}.log"
        with path.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "scripts.cli", "worker"],
                env={**os.environ, "PERDURE_BUILD_ID": self.build},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.report["worker"] = {"pid": process.pid, "log": str(path)}
        self.say(f"started: a worker of build {self.build}, process {process.pid}, log {path}")

    async def _workers_are_there(self, client: Client, before: Polls) -> None:
        """Waits until workers of the build have polled anew: one that was killed just now has polled before."""
        end = asyncio.get_running_loop().time() + self.patience
        if any(before.values()):
            self.say(f"waiting for the next poll of build {self.build}, which may take a minute")
        while missing := without_news(before, await polls(client, self.settings, self.build)):
            if asyncio.get_running_loop().time() > end:
                if before and all(before[queue] for queue in missing):
                    raise Refused(
                        f"no worker of build {self.build} has polled {' and '.join(missing)} again within "
                        f"{self.patience:.0f} s, and nothing was changed. A poll may take a minute: say --wait 90s. If "
                        "the workers that polled before are gone, start one: perdure deploy --start"
                    )
                raise Refused(
                    f"no worker of build {self.build} polls {' and '.join(missing)}, and nothing was changed. Start "
                    f"one: PERDURE_BUILD_ID={self.build} perdure worker (or: perdure deploy --start)"
                )
            await asyncio.sleep(LOOK_EVERY)

    async def _move(self, client: Client, told: set[str]) -> int:
        """Tells idle runs of other builds to roll over, once each; gives how many served runs are left there."""
        runs = await self._runs(client)
        known = await versions(client, self.settings, runs)
        served = {version.build for version in known if version.workers}
        for seen in runs:
            if to_tell(seen, self.build, served) and seen.workflow_id not in told:
                told.add(seen.workflow_id)
                await self._tell(client, seen)
        return sum(bool(seen.build) and seen.build != self.build and seen.build in served for seen in runs)

    async def _tell(self, client: Client, seen: Seen) -> None:
        try:
            await client.get_workflow_handle(seen.workflow_id).signal("rollover", {"by": "perdure deploy"})
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:  # it has ended meanwhile
                raise

    async def _show(self, client: Client) -> int:
        runs = await self._runs(client)
        known = await versions(client, self.settings, runs)
        stranded = {version.build for version in known if version.build and version.runs and not version.workers}
        table = Table("build", "status", "open runs", "workers", box=None)
        for version in known:
            table.add_row(
                version.build or "(none)",
                version.status,
                str(version.runs),
                str(version.workers),
            )
        self.console.print(table)
        self.report["versions"] = [dataclasses.asdict(version) for version in known]
        left = [seen for seen in runs if seen.build in stranded]
        self.report["no_worker"] = [
            {"workflow_id": seen.workflow_id, "build_id": seen.build, "remedy": remedy("no_version", seen)}
            for seen in left
        ]
        for seen in left:
            self.say(f"{seen.workflow_id}: no worker for build {seen.build}\n  {remedy('no_version', seen)}")
        done = [v.build for v in known if v.build and v.workers and not v.runs and v.status in ("draining", "drained")]
        if done and any(v.workers for v in known if v.status == "current"):
            self.say(f"no open run is left on {', '.join(done)}: their workers can be stopped")
        if any(not v.build and v.workers and not v.runs for v in known) and any(v.status == "current" for v in known):
            self.say("workers without a build id get nothing any more: they can be stopped")
        return NO if left else DONE
