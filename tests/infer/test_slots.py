"""Slots, and what models of others are held to when they run in them."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import BasicInferencer, DynamicKVCache, KVCache, KVState, SampleStrategy
from naive_speculate.infer.slots import SlotPool
from naive_speculate.models.llama.weights import RotaryTable
from tests.speculate.toys import ToyModel


@pytest.mark.parametrize("fed", [[], [3], [3, 4, 5, 6, 7, 8]])
@pytest.mark.parametrize("held", [[1, 2, 3, 4], []])
def test_a_slot_copied_from_another_holds_its_tokens_and_no_others(fed, held):
    pool = SlotPool(ToyModel(9, seed=0))
    source, other = pool.allocate(), pool.allocate()
    pool.feed([source, other], [[*held, 0], [*fed, 0]])
    other.copy_from(source)
    assert other.num_tokens == len(held)
    found = (
        []
        if not held
        else other.cache.caches[other.row].get_kv_states()[0].keys.flatten().long().tolist()
    )
    assert found == held


class Forgetful(ToyModel):
    """Never updates its cache."""

    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache) -> torch.Tensor:
        return super().forward(query_token_ids, DynamicKVCache())


class LastOnly(ToyModel):
    """Gives the logits of the last position, as transformers does with `logits_to_keep=1`."""

    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache) -> torch.Tensor:
        return super().forward(query_token_ids, kv_cache)[:, -1:]


class Wrapped(ToyModel):
    """Gives something with logits in it."""

    def forward(self, query_token_ids: torch.Tensor, kv_cache: KVCache) -> Any:
        return {"logits": super().forward(query_token_ids, kv_cache)}


BROKEN = [
    (
        Forgetful,
        (
            r"Forgetful\.forward must add the query's \d tokens to kv_cache, with"
            r" kv_cache\.update.*; it added 0"
        ),
    ),
    (
        LastOnly,
        (
            r"LastOnly\.forward must return the logits of every query position, shape \[1, \d,"
            r" vocab_size\], got \[1, 1, 9\]"
        ),
    ),
    (Wrapped, r"Wrapped\.forward must return the logits of every query position, .* got dict"),
]


@pytest.mark.parametrize(("model", "message"), BROKEN)
def test_a_model_that_breaks_the_contract_of_forward_is_named(model, message):
    for role in ("target", "draft"):
        models: dict[str, Any] = {
            "target": ToyModel(9, seed=0),
            "draft": ToyModel(9, seed=1),
            role: model(9, seed=2),
        }
        with pytest.raises(ValueError, match=message):
            SpeculativeDecoder(ModelPair(**models)).generate(
                [1, 2, 3, 4], SamplingParams(max_tokens=5), num_draft_tokens=2
            )
    with pytest.raises(ValueError, match=message):
        BasicInferencer(model(9, seed=0)).prefill(
            torch.tensor([[1, 2]]), DynamicKVCache(), SampleStrategy.GREEDY
        )


@pytest.mark.parametrize("value", [None, [2, 3], True, "</s>"])
def test_an_end_of_sequence_token_that_is_no_token_id_is_named(value):
    class Ending(ToyModel):
        eos_token_id = value

    for role in ("target", "draft"):
        models: dict[str, Any] = {"target": ToyModel(9, seed=0), role: Ending(9, seed=1)}
        with pytest.raises(
            ValueError, match=rf"^{role}: Ending\.eos_token_id must be an int, got .*eos_token_ids$"
        ):
            ModelPair(**models)


def test_a_model_without_any_end_of_sequence_token_is_named():
    endless: Any = SimpleNamespace(forward=print)
    with pytest.raises(ValueError, match=r"^target: SimpleNamespace\.eos_token_id must be an int"):
        ModelPair(endless)


class Interleaved(RotaryTable):
    """Between storing a long table and handing it out, a thread that computed a short one stores
    that."""

    def __init__(self) -> None:
        self.computing, self.stored = threading.Event(), threading.Event()
        self.short: Sequence[torch.Tensor] = ()
        self.thread = threading.Thread(target=self._ask_for_few)
        super().__init__(torch.ones(4), 1.0)

    def _ask_for_few(self) -> None:
        self.short = self.up_to(2)

    def _compute(self, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        tables = super()._compute(num_positions)
        if num_positions == 2:
            self.computing.set()
            self.stored.wait()
        return tables

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_tables" and len(value[0]) == 1000:
            self.stored.set()
            self.thread.join()


def test_a_rotary_table_is_as_long_as_asked_though_another_thread_wanted_less():
    table = Interleaved()
    table.thread.start()
    table.computing.wait()
    assert len(table.up_to(1000)[0]) >= 1000
    assert len(table.short[0]) >= 2


def test_an_emptied_cache_takes_the_states_of_another_model_and_no_cache_takes_other_rows():
    def states(layers, rows, heads, dtype):
        return [
            KVState(*(torch.ones(rows, heads, 2, 4, dtype=dtype) for _ in range(2)))
            for _ in range(layers)
        ]

    cache = DynamicKVCache()
    cache.update(states(2, 2, 1, torch.float32))
    with pytest.raises(ValueError, match="kv_states has 3 rows, the cache has 2"):
        cache.update(states(2, 3, 1, torch.float32))
    cache.crop(2)
    cache.update(states(3, 2, 5, torch.float16))
    assert [(s.keys.shape, s.values.dtype) for s in cache.get_kv_states()] == 3 * [
        ((2, 5, 2, 4), torch.float16)
    ]
