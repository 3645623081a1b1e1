"""An Airflow of the tests' own: an empty home, the project's folders, and nobody's settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
INSIDE = Path(__file__).with_name("inside_airflow.py")


@dataclass(frozen=True)
class AirflowProcess:
    """Answers questions (the functions of `inside_airflow`), each in a fresh process."""

    home: Path

    def ask(self, question: str, *arguments: str, **variables: str) -> Any:
        return json.loads(self.run(str(INSIDE), question, *arguments, **variables).splitlines()[-1])

    def run(self, *arguments: str, **variables: str) -> str:
        """What the process printed; its whole story if it failed."""
        done = subprocess.run(
            [sys.executable, *arguments],
            env=self._environment() | variables,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "MAKEGOOD_"))}
        return inherited | {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }
