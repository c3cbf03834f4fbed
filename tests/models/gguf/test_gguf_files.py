"""The header of a file, and files that are refused by it."""

import struct

import gguf
import numpy as np
import pytest

from naive_speculate import load_pair
from naive_speculate.models.gguf.metadata import read_header, read_metadata


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def pair(key: str, kind: int, value: bytes) -> bytes:
    return string(key) + struct.pack("<I", kind) + value


PAIRS = [
    pair("general.architecture", 8, string("llama")),
    pair("llama.context_length", 4, struct.pack("<I", 77)),
    pair("llama.rope.freq_base", 6, struct.pack("<f", 2.5)),
    pair("tokenizer.ggml.model", 8, string("gpt2")),
    pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + string("a") + string("größer")),
    pair("tokenizer.ggml.token_type", 9, struct.pack("<IQ2i", 5, 2, 1, 3)),
    pair("tokenizer.ggml.add_bos_token", 7, b"\x01"),
]
LISTS = pair("lists", 9, struct.pack("<IQ", 9, 1) * 5000 + struct.pack("<IQ", 4, 0))
NESTED = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + LISTS
FILE = b"GGUF" + struct.pack("<IQQ", 3, 0, len(PAIRS)) + b"".join(PAIRS)


def test_metadata_of_every_kind_are_read(tmp_path):
    (tmp_path / "some.gguf").write_bytes(FILE)
    assert read_metadata(tmp_path / "some.gguf") == {
        "general.architecture": "llama",
        "llama.context_length": 77,
        "llama.rope.freq_base": 2.5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "größer"],
        "tokenizer.ggml.token_type": [1, 3],
        "tokenizer.ggml.add_bos_token": True,
    }


@pytest.mark.parametrize("alignment", [None, 8, 64])
def test_tensors_begin_where_the_reader_of_gguf_finds_them(tmp_path, alignment):
    """Wherever the header ends."""
    path = tmp_path / "some.gguf"
    for length in range(alignment or 32):
        writer = gguf.GGUFWriter(path, "llama")
        if alignment is not None:
            writer.add_custom_alignment(alignment)
        writer.add_name("a" * length)
        for size in (3, 5):
            writer.add_tensor(f"{size}", np.zeros(size, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        theirs = {tensor.name: tensor.data_offset for tensor in gguf.GGUFReader(path).tensors}
        assert {name: tensor.offset for name, tensor in read_header(path)[1].items()} == theirs


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be loaded: it is not a GGUF file"),
        (b"PK\x03\x04 and so on", "cannot be loaded: it is not a GGUF file"),
        (
            b"GGUF" + struct.pack("<IQQ", 9, 0, 0),
            "its GGUF version is 9, and 2 and 3 are supported",
        ),
        (FILE[:-3], "it is damaged, or was not copied in full"),
        (
            FILE.replace(struct.pack("<Q", 20), b"\xff" * 8, 1),
            "it is damaged, or was not copied in full",
        ),
        (NESTED, "it is damaged, or was not copied in full"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair("general.alignment", 4, b"\0" * 4),
            "its general.alignment is 0, and must be at least 1",
        ),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path, content, message):
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"^target='{path}' .*{message}$"):
        load_pair(path)


def test_a_file_that_is_not_there_is_one_clear_line():
    with pytest.raises(ValueError, match=r"^target='/no/such.gguf': there is no such file$"):
        load_pair("/no/such.gguf")


def test_a_head_in_a_gguf_file_is_refused_by_name(tmp_path):
    with pytest.raises(
        ValueError,
        match=(
            r"^head='.*head.gguf': GGUF heads are not supported; give a Hub id or a local folder$"
        ),
    ):
        load_pair(head=tmp_path / "head.gguf")
