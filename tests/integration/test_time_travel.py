"""Every command of docs/time-travel.md runs here, as it is written, against a run as it is told of there."""

import asyncio
import re
import textwrap
from typing import Any

import pytest
from temporalio.client import Client

from tests.integration.kit import ROOT, Stack, call, say, until

BLOCKS = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "time-travel.md").read_text(), re.DOTALL)
DIFFERS = ("perdure diff", "perdure rehearse")
RULES = [{"tool": "shop.refund", "when": "arguments.amount > 1000", "decision": "ask"}]
ALLOW = [{"tool": "shop.refund", "decision": "allow"}]
TOOLS = '''
from activities.tools import Operation, tool


@tool(effect="read")
async def find_order(order_id: str) -> dict[str, int]:
    """Find an order by its id; amounts are in cents."""
    return {"amount": 900}


@tool(effect="idempotent", name="shop.refund")
async def refund(order_id: str, amount: int, *, op: Operation) -> dict[str, str]:
    """Refund an order, in cents."""
    return {"id": f"refund of {amount} for {order_id}"}


@refund.compensate
async def cancel(op: Operation, result: dict[str, str]) -> None:
    """Takes it back."""
'''


def lines(block: str) -> list[str]:
    """Its command lines."""
    return block.replace("\\\n", " ").strip().splitlines()


async def act(stack: Stack, line: str) -> str:
    """Runs a line. Those that compare end with 1, since there is a difference."""
    done = await stack.shell(f"{line} || exit $?", stack.folder)
    if "--open" in line:  # what other tests left open on this server is replayed too
        assert re.search(r"(?m)^refunds: \d+ events, replays$", done.stdout), done.stdout
        return done.stdout
    assert done.returncode == (1 if line.startswith(DIFFERS) else 0), f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def play(stack: Stack, order: str) -> None:
    """A model that refunds an order at step 17."""
    first = [call("find_order", order_id=f"A-{number}") for number in range(1, 15)]
    refund = call("shop.refund", order_id="A-3", amount=900)
    last = [call("find_order", order_id=order), call("shop.refund", order_id=order, amount=900), say("All are done.")]
    stack.script("refunds", *first, refund, *last)
    stack.serve_model()


def prepare(stack: Stack) -> None:
    (stack.folder / "shop_tools.py").write_text(textwrap.dedent(TOOLS))
    stack.environment |= {"PERDURE_TOOLS": "shop_tools", "PYTHONPATH": f"{ROOT}:{stack.folder}"}
    tools = ["find_order", "shop.refund"]
    stack.bundle("refunds", tools, policy=[*RULES, *ALLOW])
    stack.bundle("refunds", tools, version="2", policy=[{"tool": "shop.refund", "decision": "ask"}])
    play(stack, "A-17")


@pytest.mark.all
async def test_every_command_of_the_document_does_what_it_says(stack: Stack, client: Client, monkeypatch: Any) -> None:
    prepare(stack)
    monkeypatch.syspath_prepend(str(stack.folder))
    seen, look, mend, go, compare, replay, rehearse, ask = BLOCKS
    handle = client.get_workflow_handle("refunds")
    async with stack.worker():
        value = {"goal": "refund what the customers of the list ask for", "bundle": "refunds@1", "interactive": True}
        await stack.start(value, "refunds")
        await until(lambda: waits(handle), 120)
        shown = [await act(stack, line) for line in lines(seen)]
        assert "turn 17" in shown[0]
        assert "turn 14" not in shown[1]
        assert "+" not in shown[2].splitlines()[0]
        _, report = [await act(stack, line) for line in lines(look)]
        [made] = re.findall(r"refunds\.\w+:shop\.refund:2", report)[:1]
        assert "Nothing was started" in report
    assert stack.model is not None
    stack.model.close()
    play(stack, "B-17")
    async with stack.worker():
        mended = mend.replace("refunds.9c41d07be2f5:shop.refund:2", made)
        assert mended != mend
        await act(stack, " ".join(lines(mended)))
        assert "started refunds-fork-15" in await act(stack, lines(go)[0])
        stack.runs.append("refunds-fork-15")
        fork = client.get_workflow_handle("refunds-fork-15")
        await asyncio.wait_for(decide(fork), 120)
        assert "forked from refunds@15" in await act(stack, "perdure show refunds-fork-15 --last 3")
        differs = await act(stack, lines(compare)[0])
        assert "common up to checkpoint 15" in differs
        assert "B-17" in differs
        for line in lines(replay):
            await act(stack, line)
        assert "asks" in await act(stack, lines(rehearse)[0])
        assert "requests to refunds" in await act(stack, lines(ask)[0])
        await handle.signal("finish", {"by": "alice"})
        await handle.result()


async def waits(handle: Any) -> bool:
    return "message" in (await handle.query("status"))["waiting_on"]


async def decide(handle: Any) -> None:
    """Approves what the fork asks, until it ends."""
    ended = asyncio.ensure_future(handle.result())
    while not ended.done():
        for asked in await handle.query("pending"):
            await handle.signal("approve", {"code": asked["code"], "by": "alice"})
        await asyncio.wait({ended}, timeout=0.5)
