"""Side by side: every contender in turn, on one server, so that what the machine does meanwhile strikes all alike."""

from collections.abc import Sequence
from typing import Any

from scripts.benches.contenders import Contender
from scripts.benches.rows import Rows


async def one(contenders: Sequence[Contender], rows: Rows, turns: Sequence[int], rounds: int) -> None:
    """A run by itself of each length. Who failed at one length is not tried at a greater one."""
    failed: dict[str, int] = {}
    for count in sorted(turns):
        for number in range(rounds):
            for contender in contenders:
                said: dict[str, Any] = {"contender": contender.name, "turns": count, "round": number}
                if contender.name in failed:
                    if number == 0 and failed[contender.name] < count:
                        rows.add("one", **said, status=f"not tried: failed at {failed[contender.name]}")
                    continue
                row = await contender.one(count)
                rows.add("one", **said, **row)
                if row["status"] != "ok":
                    failed[contender.name] = count


async def many(contenders: Sequence[Contender], rows: Rows, runs: Sequence[int], turns: int, rounds: int) -> None:
    """Runs at once."""
    failed: set[str] = set()
    for count in sorted(runs):
        for number in range(rounds):
            for contender in (each for each in contenders if each.name not in failed):
                row = await contender.many(count, turns)
                rows.add("many", contender=contender.name, runs=count, turns=turns, round=number, **row)
                if row["status"] != "ok":
                    failed.add(contender.name)


async def crash(contenders: Sequence[Contender], rows: Rows, rounds: int) -> None:
    """The worker dies after the effect."""
    for number in range(rounds):
        for contender in contenders:
            row = await contender.crash()
            if row is not None:
                rows.add("crash", contender=contender.name, round=number, **row)


async def large(contenders: Sequence[Contender], rows: Rows) -> None:
    """Results of 3 MB."""
    for contender in contenders:
        row = await contender.large()
        if row is not None:
            rows.add("large", contender=contender.name, **row)
