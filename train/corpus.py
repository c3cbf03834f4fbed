"""Read text files (``.txt``, ``.txt.xz``) as passages separated by ``<|endoftext|>`` lines."""

import lzma
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from naive_speculate.sampling.words import WordList
from train.config import END_OF_TEXT
from train.errors import TrainingError

SUFFIXES = (".txt", ".txt.xz")


def text_files(corpus: Sequence[Path]) -> list[Path]:
    """The named text files, and those directly in the named folders, each once, sorted by name."""
    files: set[Path] = set()
    for place in corpus:
        if place.is_dir():
            found = {path for path in place.iterdir() if path.name.endswith(SUFFIXES) and path.is_file()}
            if not found:
                raise TrainingError(f"no .txt or .txt.xz file in the corpus folder: {place}")
            files |= found
        elif place.is_file():
            files.add(place)
        else:
            raise TrainingError(f"corpus not found: {place}")
    return sorted(files, key=lambda path: path.name)


def read_text(path: Path) -> str:
    """The whole file as text; raises ``TrainingError`` naming the file and what is wrong with it."""
    try:
        data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    except lzma.LZMAError as error:
        raise TrainingError(f"not a readable .xz file: {path} ({error})") from error
    except OSError as error:
        raise TrainingError(f"cannot read {path}: {error.strerror}") from error
    if not data.strip():
        raise TrainingError(f"empty file: {path}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = data[error.start]
        raise TrainingError(f"not UTF-8: {path} has byte 0x{wrong:02x} at offset {error.start}") from error


def split_passages(text: str) -> Iterator[str]:
    """The non-empty passages of ``text``, without the separator lines and surrounding white space."""
    for passage in text.split(END_OF_TEXT):
        passage = passage.strip()
        if passage:
            yield passage


def read_passages(files: Sequence[Path]) -> Iterator[str]:
    for path in files:
        yield from split_passages(read_text(path))


def for_a_class(passages: Iterable[str], words: WordList) -> tuple[list[str], int]:
    """The passages without paragraphs that hold a listed word, cut where one was, and how many were taken out."""
    kept: list[str] = []
    taken_out = 0
    for passage in passages:
        if not words.find(passage):  # one look at the whole of most passages
            kept.append(passage)
            continue
        part: list[str] = []
        for paragraph in [*passage.split("\n\n"), None]:
            if paragraph is not None and not words.find(paragraph):
                part.append(paragraph)
                continue
            taken_out += paragraph is not None
            if part:
                kept.append("\n\n".join(part))
            part = []
    return kept, taken_out


def fingerprint(files: Sequence[Path]) -> dict[str, int]:
    """File name → size in bytes: enough to notice that a work folder was made from other texts."""
    return {path.name: path.stat().st_size for path in files}
