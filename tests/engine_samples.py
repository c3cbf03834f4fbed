"""What engines say of themselves: a text of `tools/doctor/samples` under its file's name. The
first line of a file, which is no part of the text, names the version and where that is written."""

from pathlib import Path

_doctor = Path(__file__).parent / "tools" / "doctor"
for _file in sorted((_doctor / "samples").glob("*.txt")):
    globals()[_file.stem] = _file.read_text("utf-8").partition("\n")[2]


def log(name: str) -> str:
    """A text that people paste, of `tools/doctor/logs`."""
    return (_doctor / "logs" / f"{name}.txt").read_text("utf-8")
