"""A cache that nobody uses any more serves the next sequence, empty, and a batch of them no longer than they need."""

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer.llama import model as llama
from naive_speculate.infer.slots import SlotPool
from tests.infer.llamas import FAMILIES, made, random_model, tokens

EXECUTORS = ["onnx", "torch"]


@pytest.fixture(scope="module")
def source():
    return random_model(FAMILIES["llama"]())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_next_sequence_gets_the_memory_of_the_last_and_none_of_its_numbers(source, executor):
    model = made(source, executor)
    prompt = tokens(1, 5)
    fresh = model.forward(prompt, model.new_cache(1))
    pool = SlotPool(model)
    slot = pool.allocate()
    model.forward(tokens(1, 300), pool.view([slot]))
    for buffer in slot.cache.buffers():
        buffer.keys[:, :, 200:] = torch.nan
    cache, memory = slot.cache, slot.cache.buffers()[0].keys.data_ptr()
    pool.free(slot)
    again = SlotPool(model).allocate()
    assert again.cache is cache
    assert again.num_tokens == 0
    assert cache.filled_by is None  # or the first window would be drafted in another way than in a new one
    assert cache.buffers()[0].keys.data_ptr() == memory
    assert not any(state.keys.any() or state.values.any() for state in cache.buffers())
    assert torch.equal(model.forward(prompt, cache), fresh)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_two_at_once_have_a_cache_each(source, executor):
    model = made(source, executor)
    pools = [SlotPool(model), SlotPool(model)]
    slots = [pool.allocate() for pool in pools]
    for _ in range(2):
        assert slots[0].cache is not slots[1].cache
        for pool, slot in zip(pools, slots, strict=True):
            model.forward(tokens(1, 5), pool.view([slot]))
            pool.free(slot)
        slots = [pool.allocate() for pool in pools]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_batch_that_begins_with_a_long_one_s_cache_is_as_long_as_it_needs(source, executor):
    model = made(source, executor)
    pool = SlotPool(model)
    slot = pool.allocate()
    model.forward(tokens(1, 500), pool.view([slot]))
    pool.free(slot)
    held, following = tokens(1, 50), tokens(1, 3)
    first = pool.allocate()
    expected = model.forward(torch.cat([held, following], dim=1), model.new_cache(1), num_logits=3)
    assert first.cache.capacity >= 500
    model.forward(held, pool.view([first]))
    second = pool.allocate()
    assert second.cache is first.cache
    assert first.cache.capacity == 178
    assert len(first.cache.lengths) == 2
    torch.testing.assert_close(model.forward(following, pool.view([first])), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_cache_that_takes_much_memory_is_let_go(source, executor, monkeypatch):
    model = made(source, executor)
    pool = SlotPool(model)
    slot = pool.allocate()
    model.forward(tokens(1, 5), pool.view([slot]))
    monkeypatch.setattr(llama, "_SPARE_BYTES", slot.cache.num_bytes - 1)
    cache = slot.cache
    pool.free(slot)
    assert pool.allocate().cache is not cache


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_cache_whose_memory_did_not_suffice_does_not_come_back(source, executor, monkeypatch):
    model = made(source, executor)
    pool = SlotPool(model)
    slot = pool.allocate()
    made_so_far, zeros = [], torch.zeros

    def scarce(*arguments, **options):
        made_so_far.append(None)
        if len(made_so_far) > 3:
            raise MemoryError
        return zeros(*arguments, **options)

    monkeypatch.setattr(torch, "zeros", scarce)
    with pytest.raises(MemoryError):
        model.forward(tokens(1, 5), pool.view([slot]))
    monkeypatch.undo()
    half_made = slot.cache
    pool.free(slot)
    again = pool.allocate()
    assert again.cache is not half_made
    model.forward(tokens(1, 5), pool.view([again]))


@pytest.mark.parametrize("k", [0, 3])
def test_a_seed_repeats_its_run_in_a_cache_that_served_before(source, k):
    decoder = SpeculativeDecoder(ModelPair(made(source, "onnx"), made(random_model(FAMILIES["llama"](), seed=1), "onnx")))
    params = SamplingParams(max_tokens=12, seed=5, ignore_eos=True)
    first, second = (decoder.generate([7], params, num_draft_tokens=k).trace.events for _ in range(2))
    assert [(e.kind, e.token_id, e.target_prob, e.draft_prob) for e in first] == [
        (e.kind, e.token_id, e.target_prob, e.draft_prob) for e in second
    ]
