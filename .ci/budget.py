"""Compares the characters of each part, in Python and JavaScript, with `tool.budget` of
pyproject.toml; prints what is over. A size may only fall: to raise one is a commit of its own."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = (".py", ".js")


def size(place: str) -> int:
    """Characters of a file, or of the Python and JavaScript files in a folder."""
    path = ROOT / place
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return sum(len(file.read_text(encoding="utf-8")) for file in files if file.suffix in KINDS)


def main() -> int:
    """Print the parts that are over their budget; 1 if there are any."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    over = 0
    for name, row in project["tool"]["budget"].items():
        found = sum(map(size, row["places"]))
        over += found > row["most"]
        if found > row["most"] or "-v" in sys.argv:
            print(f"{name}: {found:,} characters of {row['most']:,}; wanted {row['wanted']:,}")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
