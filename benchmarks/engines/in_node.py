"""Runs the half of an adapter that is JavaScript: one JSON object per line, there and back."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

OWN = Path(sys.prefix)  # the adapter's environment, with `node_modules`


def versions(*packages: str) -> dict[str, str]:
    """Of these packages, and of Node."""
    files = {name: OWN / "node_modules" / name / "package.json" for name in packages}
    versions = {
        name: json.loads(file.read_text("utf-8"))["version"] for name, file in files.items()
    }
    node = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
    return versions | {"Node": node.removeprefix("v")}


class Node:
    """The script of that name next to this file, which gets the models' folder."""

    def __init__(self, script: str, folder: str) -> None:
        copy = shutil.copy(Path(__file__).parent / script, OWN / script)
        pipe = subprocess.PIPE
        command = ["node", str(copy), str(Path(folder).resolve())]
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer
