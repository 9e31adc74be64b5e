"""The scenario that `./scripts/run` plays, as a person runs it."""

import asyncio
import re
import subprocess

from tests.integration.kit import ROOT, plain_environment


async def test_the_scenario_survives_its_kills_with_one_notice_and_one_mail() -> None:
    played = await asyncio.to_thread(
        lambda: subprocess.run(
            ["./scripts/run", "--yes"],
            cwd=ROOT,
            env=plain_environment(),
            text=True,
            capture_output=True,
            timeout=240,
            check=False,
        )
    )
    assert played.returncode == 0, played.stdout[-3000:] + played.stderr[-3000:]
    assert len(re.findall(r"killed with SIGKILL", played.stdout)) == 2
    assert "notices received: 1" in played.stdout
    assert "mails received: 1" in played.stdout
    requests = re.search(r"model requests: (\d+) for (\d+) steps", played.stdout)
    assert requests is not None
    assert int(requests[1]) <= int(requests[2]) + 2
