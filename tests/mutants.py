"""`make mutants ROOM=verify`: how many small faults in a room's code its tests notice.

mutmut plants the faults in a copy, `.mutants/ROOM`. It goes on where it was stopped; after a change
of the tests it tries again what survived. `mutants.toml` lists the rooms and the equivalent faults.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))
HOUR, SURVIVED, SKIPPED = 3600, (0, 33), 34  # the exit codes that mutmut stores
STATS = Path("mutants/mutmut-stats.json")
SETTINGS = """[mutmut]
source_paths=\n    {source}
only_mutate=\n    {code}
pytest_add_cli_args_test_selection=\n    {tests}
pytest_add_cli_args=\n    -pno:cacheprovider
process_isolation=forkserver
timeout_multiplier=5
timeout_constant=10
use_git_change_detection=false
"""


def plant(room: str, code: list[str], tests: list[str], most: int = 10**6, **_: object) -> None:
    """Plant the faults, and choose those to try, always by the same draw."""
    source = code[0].split("/")[0]
    (ROOT / ".mutants" / room / "mutants").mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT / ".mutants" / room)
    for path in ROOT.glob("[!.]*"):
        copied = path.name in (source, "tests", "pyproject.toml")
        for link in (Path(path.name), Path("mutants", path.name))[: 2 - copied]:
            if not link.is_symlink():
                link.symlink_to(path)
    settings = {"code": "\n    ".join(code), "tests": "\n    ".join(tests)}
    Path("setup.cfg").write_text(SETTINGS.format(source=source, **settings), "utf-8")
    from mutmut import __main__ as mutmut  # which reads the settings

    mutmut.copy_src_dir()
    mutmut.copy_also_copy_files()
    mutmut.create_mutants(1)
    newest = max(path.stat().st_mtime for path in (ROOT / "tests").rglob("*.py"))
    if changed := STATS.exists() and STATS.stat().st_mtime < newest:
        STATS.unlink()
    stored = {path: json.loads(path.read_text("utf-8")) for path in Path().rglob("*.meta")}
    names = sorted(name for one in stored.values() for name in one["exit_code_by_key"])
    chosen = set(random.Random(0).sample(names, min(most, len(names))))
    for path, one in stored.items():
        for name, was in one["exit_code_by_key"].items():
            again = was == SKIPPED or (changed and was in SURVIVED)
            now = SKIPPED if name not in chosen else None if again else was
            one["exit_code_by_key"][name] = now
        path.write_text(json.dumps(one), "utf-8")


def count(room: str, equivalent: list[dict[str, str]] = [], **_: object) -> str:  # noqa: B006
    """The room's row of the table; prints its survivors."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    metas = [json.loads(path.read_text("utf-8")) for path in Path().rglob("*.meta")]
    codes = {name: code for one in metas for name, code in one["exit_code_by_key"].items()}
    tried = {name: code for name, code in codes.items() if code not in (None, SKIPPED)}
    survived = []
    for name in (name for name, code in tried.items() if code in SURVIVED):
        lines = get_diff_for_mutant(name).splitlines()[2:]
        was, now = (" ".join(x[1:].strip() for x in lines if x[0] == sign) for sign in "-+")
        if not any((each["was"], each["now"]) == (was, now) for each in equivalent):
            survived.append(f"{name}\n    was {was}\n    now {now}")
    print(*survived, sep="\n")
    all_survived = sum(code in SURVIVED for code in tried.values())
    caught, equal = len(tried) - all_survived, all_survived - len(survived)
    share = caught / max(1, caught + len(survived))
    numbers = map(str, (len(codes), len(tried), caught, len(survived), equal))
    return f"| {room} | {' | '.join(numbers)} | {share:.0%} |"


def main(rooms: list[str]) -> None:
    if len(rooms) != 1:
        for room in rooms or ROOMS:
            subprocess.run([sys.executable, "-m", "tests.mutants", room], cwd=ROOT, check=True)
        return
    (room,) = rooms
    plant(room, **ROOMS[room])
    with subprocess.Popen([str(Path(sys.executable).with_name("mutmut")), "run"]) as running:
        try:
            running.wait(HOUR)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            running.send_signal(signal.SIGINT)
    Path("row").write_text(count(room, **ROOMS[room]), "utf-8")
    rows = [path.read_text("utf-8") for path in sorted(Path("..").glob("*/row"))]
    print("| room | mutants | tried | caught | survived | equivalent | caught of the others |")
    print("|---|---|---|---|---|---|---|", *rows, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
