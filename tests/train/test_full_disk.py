"""What cannot be written whole is one line, and leaves no file."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.tiny import tiny_llama
from tests.tokenizers_of_tests import byte_level
from train.data import Source, open_work, save_whole, whole_file
from train.export import export_model


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing more fails, as on a full disk.

    Bytecode is not written meanwhile: Python 3.11 does not notice that a write was cut, and would
    leave a module's compiled file short for every later process.
    """
    before, compiles = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = compiles


def write_checkpoint(work: Path) -> None:
    with whole_file(work / "head.pt") as partial:
        torch.save({"weights": torch.ones(5_000)}, partial)


@pytest.mark.parametrize(
    "write",
    [
        lambda work: open_work(work, Source("t", 97, 32, [1] * 5_000, "digest")),
        lambda work: save_whole({"known": torch.ones(5_000)}, work / "known-64.safetensors"),
        write_checkpoint,
    ],
    ids=["source", "tensors", "checkpoint"],
)
def test_a_file_of_the_work_folder(write, tmp_path):
    with (
        files_of_at_most(1_000),
        pytest.raises(ValueError, match=rf"^--work {tmp_path}: cannot be written: ") as refused,
    ):
        write(tmp_path)
    assert "\n" not in str(refused.value).strip()
    assert list(tmp_path.iterdir()) == []
    write(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] != [".partial"]


@pytest.mark.parametrize("fails", ["model.safetensors", "tokenizer.json"])
def test_a_drafter(fails, tmp_path):
    model = tiny_llama(1, seed=0, hidden_size=8, intermediate_size=8)
    out = tmp_path / "draft"
    export_model(model, byte_level(), out)
    sizes = {path.name: path.stat().st_size for path in out.iterdir()}
    assert sizes["config.json"] < sizes["model.safetensors"] < sizes["tokenizer.json"]
    with (
        files_of_at_most(sizes[fails] - 1),
        pytest.raises(ValueError, match=rf"^--out {out}: cannot be written: "),
    ):
        export_model(model, byte_level(), out)
    assert {path.name: path.stat().st_size for path in out.iterdir()} == sizes
    assert [path.name for path in tmp_path.iterdir()] == ["draft"]
