"""`perdure runs` in a namespace without search attributes: the runs themselves are asked."""

import json
from datetime import UTC, datetime, timedelta

from opentelemetry.sdk.metrics import MeterProvider
from temporalio.client import Client

from scripts.embedded import EmbeddedTemporal
from tests.integration.kit import Stack, call, pending, say, until
from tests.integration.test_runs import rate_limited
from workers.client import DATA_CONVERTER
from workers.open_runs import open_runs
from workers.waiting import Waiting

NAMESPACE = "without-attributes"
WAITS = {"asks": "approval", "paused": "paused", "idle": "message", "limited": "rate_limit"}


def prepare(stack: Stack) -> None:
    """A bundle for each run; all but `idle` ask before they write."""
    for name in WAITS:
        stack.script(name, *([] if name == "idle" else [call("write_file", path="a", content="A")]), say("done"))
        model = {"model": name} | ({"base_url_env": "LIMITED_URL"} if name == "limited" else {})
        stack.bundle(name, ["write_file"], model=[model], policy=[{"tool": "write_file", "decision": "ask"}])
    stack.serve_model()


async def test_runs_without_search_attributes_are_asked_what_they_wait_for(
    stack: Stack, server: EmbeddedTemporal
) -> None:
    made = await stack.shell(f"temporal operator namespace create -n {NAMESPACE} --retention 72h")
    assert made.returncode == 0, made.stderr
    stack.environment["TEMPORAL_NAMESPACE"] = NAMESPACE
    client = await Client.connect(server.address, namespace=NAMESPACE, data_converter=DATA_CONVERTER)

    async def known() -> bool:
        return (await stack.shell(f"temporal workflow count -n {NAMESPACE}")).returncode == 0

    await until(known, 60, "the namespace")
    prepare(stack)
    with rate_limited() as url:
        stack.environment["LIMITED_URL"] = url
        async with stack.worker():
            for name in WAITS:
                await stack.start({"goal": "wait", "bundle": name, "interactive": True}, name)
            stack.runs.clear()  # they are in another namespace than the fixture's
            asked = datetime.fromisoformat((await pending(client.get_workflow_handle("asks")))[0]["asked_at"])
            await pending(client.get_workflow_handle("paused"))
            await client.get_workflow_handle("paused").execute_update("pause", {"by": "ann"})

            async def stuck(after: timedelta = timedelta(0)) -> dict[str, str]:
                found, now = await open_runs(client), datetime.now(UTC)
                return {each.seen.workflow_id: each.cause.kind for each in found if each.cause.is_stuck(now, after)}

            async def told() -> bool:
                return await stuck() == WAITS

            await until(told, 60, "each is named for what it waits for")
            assert await stuck(timedelta(hours=1)) == {"limited": "rate_limit"}
            found = {each.seen.workflow_id: each for each in await open_runs(client, "approval")}
            assert set(found) == {"asks", "paused"}
            assert (found["asks"].cause.since, found["asks"].seen.turn) == (asked, 1)
            idle = (await open_runs(client, "message"))[0]
            assert idle.seen.started < idle.cause.since <= datetime.now(UTC)
            done = await stack.shell("perdure runs --waiting approval --json")
            assert done.returncode == 0, done.stderr
            assert {row["workflow_id"] for row in json.loads(done.stdout)} == {"asks", "paused"}
            assert "perdure setup" in done.stderr
            counts = await Waiting(client, MeterProvider(shutdown_on_exit=False).get_meter("test")).count()
            assert counts == {"all": 4, "task_failing": 0}
