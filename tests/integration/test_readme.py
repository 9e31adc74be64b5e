"""Every command of the README runs here, as it is written, in the order in which it stands."""

import asyncio
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.client import Client

from scripts.embedded import free_port
from tests.integration.kit import ROOT, Stack, call, pending, plain_environment, say, until
from workers.client import DATA_CONVERTER

BLOCKS = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
TRIED_ELSEWHERE = {"./scripts/run --yes\n": "test_scenario.py", "./scripts/test\n": "it is what runs this"}


def block(start: str) -> str:
    """The one block of the README that has this line beginning."""
    found: list[str] = [text for text in BLOCKS if re.search(rf"(?m)^{re.escape(start)}", text)]
    assert len(found) == 1, f"{len(found)} blocks of the README have a line that begins with {start!r}"
    return found[0]


@pytest.fixture
def desk(tmp_path: Path) -> Stack:
    """A folder like a fresh clone's, and a model that plays both of the README's agents."""
    stack = Stack("", tmp_path / "stack", "perdure")
    stack.script(
        "gpt-5-mini",
        call("write_file", "A haiku.", path="haiku.txt", content="Machines fall asleep"),
        call("send_email", to="team@example.com", subject="Haiku", body="Machines fall asleep"),
        say("It is in haiku.txt. The mail was not allowed."),
    )
    stack.script(
        "gpt-5",
        call("find_order", order_id="A-17"),
        call("shop.refund", order_id="A-17", amount=2500),
        say("Refunded."),
    )
    stack.serve_model()
    port = free_port()
    stack.address = f"127.0.0.1:{port}"
    stack.environment = {
        "TEMPORAL_ADDRESS": stack.address,
        "OPENAI_BASE_URL": stack.environment["OPENAI_BASE_URL"],
        "OPENAI_API_KEY": "sk-test",
        "PERDURE_STORE": (tmp_path / "store").as_uri(),
        "PERDURE_WORKSPACES": str(tmp_path / "workspaces"),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    return stack


@asynccontextmanager
async def running(stack: Stack, lines: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A block that stays, as in a terminal of its own."""
    with (folder / "terminal.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *("bash", "-ec", lines.replace("perdure worker", "exec perdure worker")),
            cwd=folder,
            env={**plain_environment(), **stack.environment, "PATH": stack.path},
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


async def test_every_command_of_the_readme_does_what_it_says(desk: Stack, tmp_path: Path) -> None:
    assert {text for text in BLOCKS if text.startswith("./")} == set(TRIED_ELSEWHERE)
    port = desk.address.rpartition(":")[2]
    server = block("temporal server start-dev").replace("start-dev", f"start-dev --headless --port {port}")
    server = server.replace("temporal server", "exec temporal server")
    async with running(desk, server, tmp_path):
        client = await until(lambda: connect_or_none(desk.address), what="the server")
        async with running(desk, block("perdure setup"), tmp_path):
            await follow_hello(desk, client, tmp_path)
        await follow_shop(desk, client, tmp_path)


async def connect_or_none(address: str) -> Client | None:
    """A client, or nothing while the server is not up."""
    try:
        return await Client.connect(address, data_converter=DATA_CONVERTER)
    except RuntimeError:
        return None


async def follow_hello(desk: Stack, client: Client, folder: Path) -> None:
    """Own goal, approvals, looking."""
    await must(desk, block("temporal workflow start --type AgentRun --task-queue perdure --workflow-id hello"), folder)
    handle = client.get_workflow_handle("hello")
    asked = (await pending(handle, seconds=180))[0]
    assert asked["tool"] == "send_email"
    listed = await must(desk, block("temporal workflow query --workflow-id hello --type pending"), folder)
    assert asked["code"] in listed
    approve, deny = block("temporal workflow update execute").strip().splitlines()
    refused = await desk.shell(approve, folder)
    assert refused.returncode == 1
    assert "no request has the code K7Q2" in refused.stderr
    await must(desk, deny.replace("K7Q2", asked["code"]), folder)
    result = await handle.result()
    assert result["output"] == "It is in haiku.txt. The mail was not allowed."
    looked = await must(desk, block("temporal workflow query --workflow-id hello --type status"), folder)
    assert "haiku" in looked


async def follow_shop(desk: Stack, client: Client, folder: Path) -> None:
    """Own tool, own bundle."""
    await must(desk, block("mkdir -p mine"), folder)
    await must(desk, block("cat > mine/bundles/shop/1/bundle.toml"), folder)
    worker = block("export PYTHONPATH=").replace("$PWD/mine", f"{ROOT}:$PWD/mine", 1)
    async with running(desk, worker, folder):
        start = block("temporal workflow start --type AgentRun --task-queue perdure --workflow-id refund-A-17")
        await must(desk, start, folder)
        handle = client.get_workflow_handle("refund-A-17")
        asked = (await pending(handle, seconds=180))[0]
        assert asked["tool"] == "shop.refund"
        await must(desk, asked["commands"]["approve"], folder)
        result = await handle.result()
    assert [effect["external_id"] for effect in result["effects"]] == ["refund of 2500 for A-17"]


async def must(desk: Stack, lines: str, folder: Path) -> str:
    """Runs lines that have to succeed, and gives what they print."""
    done = await desk.shell(lines, folder)
    assert done.returncode == 0, f"{shlex.quote(lines)}\n{done.stdout}\n{done.stderr}"
    return done.stdout
