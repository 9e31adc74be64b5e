"""The course of a project, whatever its sessions, its evaluator and its people do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.tasks import Course, Rules, Step, Task


def task(name: str) -> Task:
    return Task(id=name, title=name, acceptance=[f"{name} works"], checks=[["true", name]])


def course(count: int = 3, **terms: int | bool) -> Course:
    made = Course(terms=Rules.model_validate(terms))
    made.planned([task(f"t{number}") for number in range(count)])
    return made


def steps(made: Course) -> list[Step]:
    """Plays it to its end, with everything going well."""
    taken = []
    while (step := made.next()).kind != "end":
        taken.append(step)
        if step.kind == "verify":
            made.checked({}, step.tasks)
        elif step.kind == "work":
            made.worked(step.tasks[0], "c0ffee", passes=True)
        else:
            made.graded(step.tasks[0], True, [])
    return taken


def test_all_well_is_one_session_and_one_grade_a_task_and_a_check_of_all_at_the_end() -> None:
    assert [(step.kind, step.tasks) for step in steps(course())] == [
        ("work", ["t0"]),
        ("grade", ["t0"]),
        ("verify", ["t0"]),
        ("work", ["t1"]),
        ("grade", ["t1"]),
        ("verify", ["t0", "t1"]),
        ("work", ["t2"]),
        ("grade", ["t2"]),
        ("verify", ["t0", "t1", "t2"]),
    ]


def test_what_is_verified_are_those_checked_longest_ago() -> None:
    verified = [step.tasks for step in steps(course(6, verify=1)) if step.kind == "verify"]
    assert verified[:4] == [["t0"], ["t0"], ["t1"], ["t0"]]
    assert sorted(verified[-1]) == [f"t{number}" for number in range(6)]


def test_a_rejected_task_is_done_again_with_the_reasons_and_then_put_to_a_person() -> None:
    made = course(2, tries=2)
    for reason in ("too slow", "still too slow"):
        assert made.next() == Step(kind="work", tasks=["t0"])
        made.worked("t0", "abc", passes=True)
        made.graded("t0", False, [reason])
    assert made.task("t0").reasons == ["too slow", "still too slow"]
    assert made.next() == Step(kind="ask", tasks=["t0"])
    made.decided("t0", accept=False, reason="use a table")
    assert (made.task("t0").rejected, made.next()) == (0, Step(kind="work", tasks=["t0"]))


def test_what_a_person_accepted_is_not_checked_again() -> None:
    made = course(2)
    made.decided("t0", accept=True)
    assert [step.tasks for step in steps(made) if step.kind == "verify"] == [["t1"]]
    made.decided("t0", accept=False)
    assert made.next() == Step(kind="work", tasks=["t0"])


def test_a_task_that_passes_and_breaks_again_and_again_is_put_to_a_person() -> None:
    made = course(1, tries=2)
    for _ in range(2):
        made.worked("t0", "abc", passes=True)
        made.graded("t0", True, [])
        made.checked({"t0": "a test that fails now and then"}, made.next().tasks)
    assert made.next() == Step(kind="ask", tasks=["t0"])
    made.decided("t0", accept=False)
    assert (made.task("t0").broken, made.next().kind) == (0, "work")


def test_a_session_that_leaves_its_checks_failing_is_not_graded() -> None:
    made = course(1)
    made.worked("t0", None, passes=False, said="pytest: 1 failed")
    assert (made.task("t0").status, made.task("t0").reasons) == ("open", ["pytest: 1 failed"])


def test_a_regression_is_found_even_after_the_last_task() -> None:
    made = course(1)
    made.worked("t0", "abc", passes=True)
    made.graded("t0", True, [])
    made.checked({"t0": "exit code 1"}, made.next().tasks)
    assert made.next() == Step(kind="work", tasks=["t0"])
    assert "broken since: exit code 1" in made.task("t0").reasons[-1]


@pytest.mark.parametrize(
    ("tasks", "reason"),
    [
        ([], "no tasks"),
        ([task("a"), task("a")], "'a' is given to two tasks"),
        ([Task(id="a", title="", acceptance=[], checks=[["x"]])], "no acceptance criteria"),
        ([Task(id="a", title="", acceptance=["x"], checks=[])], "no checks"),
    ],
)
def test_a_plan_that_nobody_could_grade_is_refused(tasks: list[Task], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Course().planned(tasks)


def test_people_reorder_and_drop() -> None:
    made = course()
    made.reordered(["t2", "t2"])
    made.dropped("t0")
    assert [step.tasks for step in steps(made) if step.kind == "work"] == [["t2"], ["t1"]]
    with pytest.raises(ValueError, match="there is no task 'x'; there are: t2, t0, t1"):
        made.dropped("x")


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 7)), max_size=60), st.booleans())
def test_only_a_grade_passes_a_task_and_nobody_changes_its_criteria(
    outcomes: list[tuple[bool, bool, int]], evaluated: bool
) -> None:
    made = course(4, grade=evaluated)
    fixed = [(each.id, each.acceptance, each.checks) for each in made.tasks]
    for well, accept, flips in outcomes:
        step = made.next()
        before = {each.id for each in made.tasks if each.status == "passing"}
        if step.kind == "verify":
            made.checked({name: "broken" for n, name in enumerate(step.tasks) if flips >> n & 1}, step.tasks)
        elif step.kind == "work":
            made.worked(step.tasks[0], None, passes=well)
        elif step.kind == "grade":
            made.graded(step.tasks[0], well, ["no"])
        elif step.kind == "ask":
            made.decided(step.tasks[0], accept=accept)
        new = {each.id for each in made.tasks if each.status == "passing"} - before
        by_checks = not evaluated and step.kind == "work" and well
        assert not new or step.kind in ("grade", "ask") or by_checks
        assert made.next() == made.next(), "asking changes nothing"
        assert made == Course.model_validate_json(made.model_dump_json()), "it is carried over a rollover as it is"
        if any(each.status == "failed" for each in made.tasks):
            assert made.next().kind == "ask"
    assert [(each.id, each.acceptance, each.checks) for each in made.tasks] == fixed
    for each in made.tasks:
        each.status = "open" if each.status == "failed" else each.status
    steps(made)
    assert {each.status for each in made.tasks} == {"passing"}
