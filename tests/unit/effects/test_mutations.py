"""Faults put into the sandwich on purpose: each must make a test fail, or that test guards nothing."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CROSSINGS = "tests/unit/effects/test_crossings.py"
RULES = "tests/unit/effects/test_rules.py"
WORDS, PLANS, EQUAL, ENDS = (f"tests/unit/effects/test_{name}.py" for name in ("words", "plans", "equal", "ends"))


@dataclass(frozen=True)
class Mutation:
    """`old` becomes `new` in `file`, and `test` must see it."""

    name: str
    file: str
    old: str
    new: str
    test: str = CROSSINGS


EFFECTS, GATE, JUDGE = "activities/effects.py", "activities/gate.py", "activities/judge.py"
ATTEMPTS, UNDOING = "activities/attempts.py", "activities/compensation.py"
MUTATIONS = [
    Mutation(
        "commit before execute",
        EFFECTS,
        "            value = await self.deed.act()\n",
        '            await self._happened(hold, "executed", {})\n            value = await self.deed.act()\n',
    ),
    Mutation(
        "key from a uuid",
        "activities/tools/operation.py",
        "self.idempotency_key or self.operation_id)",
        'self.idempotency_key or __import__("uuid").uuid4().hex)',
        RULES,
    ),
    Mutation(
        "fingerprint of the tool's name only",
        JUDGE,
        'return f"fx:v1:{digest(parts)}"',
        'return f"fx:v1:{digest(spec.name)}"',
        RULES,
    ),
    Mutation(
        "empty fingerprint accepted",
        GATE,
        "        if not call.fingerprint or not call.operation_id:\n",
        "        if not call.fingerprint:\n            return\n        if not call.operation_id:\n",
        RULES,
    ),
    Mutation(
        "no COMMITTED read as not executed",
        EFFECTS,
        'return await self._unknown(hold, "an earlier attempt ended without saying whether it acted")',
        "return await self._execute(hold, certain=True)",
    ),
    Mutation(
        "lease ignored",
        EFFECTS,
        "max(claim.lease - self._age(claim)",
        "max(0 * claim.lease - self._age(claim)",
    ),
    Mutation(
        "look-up skipped",
        EFFECTS,
        "if self.deed.look is not None and (found := await self._look(hold, told)) is not None:",
        "if False and (found := await self._look(hold, told)) is not None:",
    ),
    Mutation(
        "a person's word used twice",
        EFFECTS,
        "return fits and all(claim.word != resolution.code for claim in claims)",
        "return True",
    ),
    Mutation(
        "a refused repetition counts as not executed",
        EFFECTS,
        'self.on_unknown == "retry":\n            return await self._execute(hold, certain=False)\n',
        'self.on_unknown == "retry":\n            return await self._execute(hold, certain=True)\n',
    ),
    Mutation(
        "an old claim acted on",
        EFFECTS,
        "        if self.clock() - hold.since > FRESH:\n            fresh",
        "        if False:\n            fresh",
    ),
    Mutation(
        "nothing happened, while another acts",
        ATTEMPTS,
        "fence = await self._claim(number + 1, refused=True)",
        "fence = Hold(number, 0.0)",
    ),
    Mutation(
        "a person asked while an attempt may live",
        EFFECTS,
        "claims(self.thread, held)\n        if (ended := ",
        "claims(self.thread, held)\n        if False and (ended := ",
    ),
    Mutation("what was waited counted twice", ATTEMPTS, "= self.ages.get(", "= 2 * self.ages.get("),
    Mutation("a claim counted from before it was seen", ATTEMPTS, "self.seen.get(name, now)", "self.seen.get(name, 0)"),
    Mutation(
        "an undoing that was stopped ended for good", EFFECTS, " or self.record.undoes is not None:", ":", CROSSINGS
    ),
    Mutation(
        "an older and longer lease not waited out",
        EFFECTS,
        "self.operation)).claims)\n",
        "self.operation)).claims[-1:])\n",
    ),
    Mutation(
        "a deploy's longer time taken", GATE, "return min(self.tool.seconds(", "return max(self.tool.seconds(", RULES
    ),
    Mutation(
        "a person's result kept in words only",
        ATTEMPTS,
        "text, attempts, False, outside, resolution.by, result)",
        "text, attempts, False, outside, resolution.by)",
        WORDS,
    ),
    Mutation(
        "a word about the operation before taken for this one",
        "workflows/requests.py",
        "return found if about is not None and about.operation_id == call.operation_id else None",
        "return found",
        WORDS,
    ),
    Mutation("an undoing in doubt left out", UNDOING, '"ABSENT") not in ENDS', '"ABSENT") == "ABSENT"', PLANS),
    Mutation("an undoing given less time than the lease", UNDOING, "max(step.timeout, longest)", "step.timeout", PLANS),
    Mutation("an undoing that has ended not named", UNDOING, "over=[held.op", "over=[] and [held.op", PLANS),
    Mutation(
        "no person asked where no attempt can say",
        "workflows/tool_calls.py",
        "if not workflow.patched(DOUBTS_ASK):",
        "if True:",
        ENDS,
    ),
    Mutation(
        "what was waited not handed on",
        "activities/heartbeats.py",
        "*([waited] if waited else [])",
        "",
        "tests/unit/test_heartbeats.py",
    ),
    Mutation("undone by the clock", UNDOING, "return place, found.outcome", "return [], found.outcome", PLANS),
    Mutation("a file of another start taken for written", JUDGE, " and not writes and spec", " and spec", EQUAL),
    Mutation("another start's files count", JUDGE, "elsewhere=not writes)", "elsewhere=True)", EQUAL),
    Mutation(
        "another request under a taken id executed",
        EFFECTS,
        "if held.request_digest != self.record.request_digest:",
        "if False:",
    ),
]


@pytest.mark.all
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: str(mutation.name))
def test_a_fault_put_into_the_sandwich_is_seen(mutation: Mutation, tmp_path: Path) -> None:
    for package in ("workflows", "activities", "workers", "scripts", "tests"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / mutation.file
    source = path.read_text()
    assert source.count(mutation.old) == 1, f"{mutation.file} has changed: mend this mutation"
    path.write_text(source.replace(mutation.old, mutation.new))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", mutation.test],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PERDURE_TEST_ALL": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1, f"not seen: {done.stdout[-2000:]}{done.stderr[-1000:]}"
