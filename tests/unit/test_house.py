"""The house's own rules: who may import whom, how long a module may be, what locks, scripts and images may hold."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("workflows", "activities", "workers", "scripts", "tests")
# A package may import those before it in this order, and itself.
ARROWS = ("workflows", "activities", "workers", "scripts")
# What workflow code may use beside the standard library and itself.
WORKFLOW_LIBRARIES = {"pydantic", "temporalio.workflow", "temporalio.common", "temporalio.exceptions"}
# Ruff's banned-api rule sees names that are imported, so the builtins are banned here.
WORKFLOW_BANNED_BUILTINS = {"open", "print", "input", "hash", "eval", "exec", "__import__"}
LOCKS = ("requirements.lock", "requirements-dev.lock")


def modules(package: str) -> Iterator[Path]:
    yield from sorted((ROOT / package).rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every imported module with its line, `from a import b` as `a.b` too; imports inside functions count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import; write it absolutely"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def is_within(module: str, allowed: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in allowed)


@pytest.mark.parametrize("package", ARROWS)
def test_imports_follow_the_arrows(package: str) -> None:
    forbidden = {*ARROWS[ARROWS.index(package) + 1 :], "tests"}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in modules(package)
        for line, module in imports(ast.parse(path.read_text()))
        if is_within(module, forbidden)
    ]
    assert wrong == []


def test_workflows_import_little() -> None:
    allowed = {"workflows", *WORKFLOW_LIBRARIES, *sys.stdlib_module_names}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for path in modules("workflows")
        for line, module in imports(ast.parse(path.read_text()))
        if not is_within(module, allowed)
    ]
    assert wrong == []


def test_workflows_use_no_builtin_that_replay_cannot_repeat() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno} uses {node.id}"
        for path in modules("workflows")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name) and node.id in WORKFLOW_BANNED_BUILTINS
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    ["import random", "import time", "import uuid\nuuid.uuid4()", "import os\nos.getenv('A')", "import socket"],
)
def test_lint_keeps_workflows_deterministic(line: str) -> None:
    def codes(folder: str) -> str:
        command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=concise", "--select=TID251"]
        stdin = ["--stdin-filename", str(ROOT / folder / "probe.py"), "-"]
        return subprocess.run([*command, *stdin], input=line, capture_output=True, text=True, cwd=ROOT).stdout

    assert "TID251" in codes("workflows")
    assert "TID251" not in codes("activities")


def test_modules_are_short() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for package in PACKAGES
        for path in modules(package)
        if (count := len(path.read_text().splitlines())) > 300
    }
    assert long == {}


def pins(lock: str) -> set[str]:
    return set(re.findall(r"^[a-z0-9][^ ]*==[^ ]+", (ROOT / lock).read_text(), re.MULTILINE))


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_names_no_place_to_download_from(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    assert [line for line in lines if re.search(r"https?:|file:|^\s*--(?!hash=sha256:)| @ ", line)] == []


def test_locks_agree_and_hold_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime, dev = (pins(lock) for lock in LOCKS)
    assert runtime <= dev
    wanted = {
        re.split(r"[\[<>=]", requirement)[0]
        for requirement in [*project["project"]["dependencies"], *project["dependency-groups"]["build"]]
    }
    assert wanted <= {pin.split("==")[0] for pin in runtime}


def shell_scripts() -> list[Path]:
    candidates = [*(ROOT / "scripts").iterdir(), *(ROOT / ".ci").iterdir(), *(ROOT / "deploy").iterdir()]
    return [path for path in candidates if path.is_file() and re.match(rb"#!.*\b(ba)?sh\n", path.read_bytes()[:40])]


def test_shell_scripts_parse() -> None:
    assert {"run", "setup", "test"} <= {path.name for path in shell_scripts()}
    for path in shell_scripts():
        checked = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr


def compose_config(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    compose = shutil.which("docker-compose")
    if compose is None:
        pytest.skip("NOT CHECKED: docker-compose.yml, for want of docker-compose (Debian package docker-compose)")
    command = [compose, "--env-file", ".env.example", "--file", "docker-compose.yml", "config"]
    path = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(command, env=path | environment, capture_output=True, text=True, cwd=ROOT)


SECRETS = {"POSTGRES_PASSWORD": "p-secret", "S3_ACCESS_KEY_ID": "k-secret", "S3_SECRET_ACCESS_KEY": "s-secret"}


def test_compose_file_is_valid() -> None:
    checked = compose_config(SECRETS)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("missing", SECRETS)
def test_compose_file_has_no_default_password(missing: str) -> None:
    checked = compose_config({name: value for name, value in SECRETS.items() if name != missing})
    assert checked.returncode != 0
    assert "set it in .env" in checked.stderr


def test_compose_images_are_pinned() -> None:
    images = re.findall(r"^\s+image: (\S+)", (ROOT / "docker-compose.yml").read_text(), re.MULTILINE)
    assert images
    assert [image for image in images if not re.fullmatch(r"[a-z0-9./-]+:v?\d+\.\d+[\w.-]*", image)] == []


def test_dockerfile_passes_hadolint() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    checked = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_no_console_makes_pictures_of_ids() -> None:
    """Rich takes `:shell:` for one: an operation id holds such words."""
    found = [
        path for path in (ROOT / "scripts").rglob("*.py") if re.search(r"\bConsole\((?!emoji=False)", path.read_text())
    ]
    assert found == []
