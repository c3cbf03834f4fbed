"""Save a model with its tokenizer as ``transformers`` loads them: float16, small safetensors shards."""

import copy
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer
from transformers import GenerationConfig, LlamaForCausalLM

from train.config import END_OF_TEXT_ID
from train.tokenizer import for_transformers

MAX_SHARD_SIZE = "9MB"


def export(model: LlamaForCausalLM, tokenizer: Tokenizer, folder: Path) -> None:
    half = copy.deepcopy(model).half()
    half.generation_config = GenerationConfig(bos_token_id=END_OF_TEXT_ID, eos_token_id=END_OF_TEXT_ID, do_sample=False)
    with written_anew(folder) as partial:
        half.save_pretrained(partial, max_shard_size=MAX_SHARD_SIZE)
        for_transformers(tokenizer, model.config.max_position_embeddings).save_pretrained(partial)
        for path in partial.iterdir():
            path.chmod(0o644)


@contextmanager
def written_anew(folder: Path) -> Iterator[Path]:
    """A folder to write to; what was in ``folder`` is replaced by it only once everything is written, and else nothing is."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
