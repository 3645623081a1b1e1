"""What the README shows works as it is written."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from makegood.settings import Settings
from makegood.workflows import load_own

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def test_workflow_of_the_readme_is_a_workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "my_shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "workflows.py").write_text(blocks("python")[0])
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    (workflow,) = load_own(Settings(workflows=("my_shop.workflows",)))
    assert workflow.name == "subscription"
    assert ["activating", "completed"] in [list(edge) for edge in workflow.to_document()["edges"]]


def test_commands_of_the_readme_exist() -> None:
    shown = {line.split("#")[0] for block in blocks("sh") for line in block.splitlines()}
    commands = sorted({match[1] for line in shown if (match := re.search(r"bin/makegood ((?:[a-z]+ ?)+)", line))})
    assert len(commands) >= 8
    for command in commands:
        words = [word for word in command.split() if not word.startswith("order")]
        program = [sys.executable, "-m", "makegood.cli", *words, "--help"]
        done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=False)
        assert done.returncode == 0, f"makegood {command}: {done.stderr}"


def test_make_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {match for block in blocks("sh") for match in re.findall(r"^make ([a-z]+)", block, flags=re.M)}
    assert {"up", "test", "down"} <= targets
    assert all(re.search(rf"^{target}:", makefile, flags=re.M) for target in targets)


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_settings_of_the_readme_exist() -> None:
    for name in set(re.findall(r"MAKEGOOD_([A-Z0-9_]+)", README)):
        assert name.lower() in Settings.model_fields, name
