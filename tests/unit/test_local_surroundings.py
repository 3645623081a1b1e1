"""What every service finds around it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from makegood.local.surroundings import bytecode_folder, proxy_variables, python_variables


def test_programs_of_this_python_come_first(tmp_path: Path) -> None:
    found = python_variables(tmp_path, {"PATH": "/usr/bin"})
    assert found == {"PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin"}


def test_compiled_code_is_kept_in_the_home_when_it_may_not_lie_beside_the_sources(tmp_path: Path) -> None:
    found = python_variables(tmp_path, {"PATH": "/usr/bin", "PYTHONDONTWRITEBYTECODE": "1"})
    assert found["PYTHONDONTWRITEBYTECODE"] == ""
    assert found["PYTHONPYCACHEPREFIX"] == str(bytecode_folder(tmp_path))


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({}, "127.0.0.1,localhost"),
        ({"NO_PROXY": "intra.example"}, "intra.example,127.0.0.1,localhost"),
        ({"no_proxy": "a,localhost", "NO_PROXY": "b"}, "a,localhost,127.0.0.1"),  # the small one wins, as in curl
    ],
)
def test_loopback_is_asked_without_a_proxy(environment: dict[str, str], names: str) -> None:
    assert proxy_variables(environment) == {"no_proxy": names, "NO_PROXY": names}
