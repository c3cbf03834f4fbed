"""Text folders are read as passages; what cannot be read is named with file and byte."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from naive_speculate.sampling.words import WordList
from train.corpus import for_a_class, read_passages, text_files
from train.errors import TrainingError


def test_plain_and_compressed_files_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.txt.xz").write_bytes(lzma.compress(b"three\n<|endoftext|>\n\n"))
    (tmp_path / "a.txt").write_text("one\n<|endoftext|>\ntwo é\n")
    (tmp_path / "notes.md").write_text("not text")
    assert list(read_passages(text_files([tmp_path]))) == ["one", "two é", "three"]


def test_files_and_folders_can_be_named_together_and_each_counts_once(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "b.txt").write_text("two")
    (tmp_path / "a.txt").write_text("one")
    found = text_files([tmp_path / "a.txt", tmp_path / "more", tmp_path / "more" / "b.txt"])
    assert [path.name for path in found] == ["a.txt", "b.txt"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"corpus not found: .*nowhere"):
        text_files([tmp_path / "nowhere"])


def test_a_folder_without_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"no \.txt or \.txt\.xz file"):
        list(read_passages(text_files([tmp_path])))


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "void.txt").write_text(" \n")
    with pytest.raises(TrainingError, match=r"empty file: .*void\.txt"):
        list(read_passages(text_files([tmp_path])))


def test_a_wrong_byte_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_bytes(b"caf\xe9 noir")
    with pytest.raises(TrainingError, match=r"not UTF-8: .*old\.txt has byte 0xe9 at offset 3"):
        list(read_passages(text_files([tmp_path])))


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.txt.xz").write_bytes(b"no archive")
    with pytest.raises(TrainingError, match=r"not a readable \.xz file: .*bad\.txt\.xz"):
        list(read_passages(text_files([tmp_path])))


def test_paragraphs_with_listed_words_are_taken_out_and_passages_cut_there() -> None:
    passages = ["one\n\ntwo", "three\n\nA wurzel!\n\nfour\n\nfive", "Wurzels.", "six"]
    kept, taken_out = for_a_class(passages, WordList(["wurzel"]))
    assert kept == ["one\n\ntwo", "three", "four\n\nfive", "six"]
    assert taken_out == 2
