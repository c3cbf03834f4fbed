"""What engines say of themselves: a text of `doctor/samples` under its file's name. The first line
of a file, which is no part of the text, names the version and where that is written."""

from pathlib import Path

for _file in sorted((Path(__file__).parent / "doctor" / "samples").glob("*.txt")):
    globals()[_file.stem] = _file.read_text("utf-8").partition("\n")[2]
