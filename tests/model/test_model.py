"""The protocol of effects, checked exhaustively by spin: every interleaving of attempts, crashes, time and a person."""

import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("sandwich.pml")
KINDS = {"keys": 0, "lookup": 1, "nothing": 2}
MUTATIONS = {
    "M_COMMIT_FIRST": "nothing",
    "M_KEY": "keys",
    "M_FINGERPRINT": "keys",
    "M_EMPTY": "keys",
    "M_NOT_EXECUTED": "nothing",
    "M_LEASE": "lookup",
    "M_LOOK": "lookup",
    "M_FENCE": "keys",
}


def search(folder: Path, kind: str, *mutations: str) -> str:
    """What spin says of the whole state space. Skips, loudly, where there is no spin."""
    if not shutil.which("spin") or not shutil.which("gcc"):
        pytest.skip("NOT CHECKED: the model of effects, for want of spin and gcc (Debian packages spin, gcc)")
    given = [f"-DKIND={KINDS[kind]}", *(f"-D{each}" for each in mutations)]
    made = subprocess.run(
        ["spin", *given, "-a", shutil.copy(MODEL, folder)], cwd=folder, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stdout + made.stderr
    flags = ["-O1", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", "-w"]
    built = subprocess.run(["gcc", *flags, "-o", "pan", "pan.c"], cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return subprocess.run(["./pan", "-m200000"], cwd=folder, capture_output=True, text=True, timeout=300).stdout


@pytest.mark.parametrize("kind", KINDS)
def test_no_run_doubles_an_effect_reports_a_false_one_or_waits_without_a_name(kind: str, tmp_path: Path) -> None:
    said = search(tmp_path, kind)
    assert "errors: 0" in said, said
    assert "max search depth too small" not in said
    assert "Search not completed" not in said


@pytest.mark.all
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_mutation_of_the_model_has_a_counterexample(mutation: str, tmp_path: Path) -> None:
    said = search(tmp_path, MUTATIONS[mutation], mutation)
    assert "errors: 1" in said, said
    assert "assertion violated" in said, said
