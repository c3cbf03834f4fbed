"""The fast models of the Llama family give transformers' logits, whatever the cache holds, also
where windows are captured."""

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import GPT2Config, LlamaConfig

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import (
    BatchLanguageModel,
    DynamicKVCache,
    KVCache,
    KVState,
    TransformersLanguageModel,
)
from naive_speculate.models.llama.model import LlamaLanguageModel
from naive_speculate.models.llama.weights import is_supported
from tests.models.llama.llamas import (
    EXECUTORS,
    FAMILIES,
    SHAPE,
    TOLERANCE,
    VOCAB,
    Rows,
    compute_again,
    direct_logits,
    halved,
    made,
    random_model,
    tokens,
)

SOURCE = random_model(FAMILIES["llama"]())


@pytest.fixture(scope="module", params=FAMILIES)
def source(request):
    return random_model(FAMILIES[request.param]())


@pytest.fixture(scope="module", params=["onnx", "torch"])
def model(request, source):
    return made(source, request.param)


@pytest.fixture(scope="module", params=EXECUTORS)
def llama(request):
    return made(SOURCE, request.param)


def test_rows_can_be_copied_after_a_cache_has_grown_and_all_executors_decode_the_same_tokens():
    found, prompt = [], [7 + number % 50 for number in range(560)]
    for executor in EXECUTORS:
        models = (made(random_model(FAMILIES["llama"](), seed), executor) for seed in (0, 1))
        decoder = SpeculativeDecoder(ModelPair(*models))
        params = SamplingParams(n=2, max_tokens=4, seed=1, temperature=0.7, ignore_eos=True)
        outputs = decoder.generate(prompt, params, num_draft_tokens=3).outputs
        ends = [
            SamplingParams(max_tokens=count, temperature=0, ignore_eos=True) for count in (8, 2, 8)
        ]
        for prompts in ([prompt] * 3, [[5, 6, 7], [8, 9], [10]]):
            outputs += decoder.generate(prompts, ends, num_draft_tokens=3)
        found.append([output.token_ids for output in outputs])
    assert [len(token_ids) for token_ids in found[0]] == [4, 4, 8, 2, 8, 8, 2, 8]
    assert found[0][2] == found[0][4]
    assert found == found[:1] * 3


def test_prefill_then_windows_and_crops_give_transformers_logits_at_every_position(model, source):
    """Captured windows compute what torch does, and are tested with rows of different lengths."""
    rows, reference = Rows(model, source, 1), TransformersLanguageModel(source)
    rows.forward(11, [0])
    for count, surplus in ((1, 0), (5, 3), (5, 5), (9, 2), (2, 0)):
        rows.forward(count, [0], crop=[surplus])
    assert isinstance(model, BatchLanguageModel)
    for name in (
        "eos_token_id",
        "eos_token_ids",
        "name",
        "vocab_size",
        "max_positions",
        "device",
        "num_parameters",
    ):
        assert getattr(model, name) == getattr(reference, name)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("family", ["llama3 rope", "mistral window", "qwen2 mixed windows"])
def test_rows_of_different_lengths_give_transformers_logits(family, executor):
    source = random_model(FAMILIES[family]())
    rows = Rows(made(source, executor), source, 4)
    everything = [0, 1, 2, 3]
    rows.forward(7, everything, crop=[0, 2, 4, 7])  # right-padded prompts, one of them empty
    rows.forward(1, everything)
    rows.forward(5, everything, crop=[4, 3, 0, 1])
    rows.forward(5, [2], crop=[2])
    rows.forward(4, [1, 2], num_logits=2)
    rows.forward(3, [3, 0], crop=[0, 3])
    rows.forward(2, [3, 1, 2])
    rows.forward(1, [2, 0])


def test_caches_grow_beyond_their_first_capacity(llama):
    rows = Rows(llama, SOURCE, 2)
    rows.forward(70, [0])
    rows.forward(5, [0, 1])
    rows.forward(140, [1])
    rows.forward(5, [0, 1], crop=[5, 2])
    rows.cache.add_rows(2)
    rows.held += [[], []]
    rows.forward(3, [0, 1, 2, 3])


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("family", ["llama", "qwen2 mixed windows"])
def test_a_plain_cache_is_read_and_extended(family, executor):
    source, cache, reference_cache = (
        random_model(FAMILIES[family]()),
        DynamicKVCache(),
        DynamicKVCache(),
    )
    model, reference = made(source, executor), TransformersLanguageModel(source)
    for count, surplus in ((6, 2), (1, 0), (5, 4), (3, 0)):
        query = tokens(2, count)
        expected = reference.forward(query, reference_cache)
        torch.testing.assert_close(model.forward(query, cache), expected, rtol=0, atol=TOLERANCE)
        for ours, theirs in zip(
            cache.get_kv_states(), reference_cache.get_kv_states(), strict=True
        ):
            torch.testing.assert_close(ours.keys, theirs.keys, rtol=0, atol=TOLERANCE)
            torch.testing.assert_close(ours.values, theirs.values, rtol=0, atol=TOLERANCE)
        cache.crop(surplus)
        reference_cache.crop(surplus)


def test_a_ragged_cache_serves_one_model_after_another(llama):
    """Whatever the arrangement of the values that each prefers; while the cache grows, too."""
    reference, cache, written = TransformersLanguageModel(SOURCE), llama.new_cache(1), []
    for turn, model in enumerate((llama, reference, llama, made(SOURCE, "torch"), llama)):
        query = tokens(1, 6 + 17 * turn)
        logits = model.forward(query, cache)
        written += query[0].tolist()
        expected = direct_logits(SOURCE, written)[-query.shape[1] :]
        torch.testing.assert_close(logits[0], expected, rtol=0, atol=TOLERANCE)


def test_a_plain_cache_that_is_cropped_to_nothing_takes_values_of_any_width(llama):
    """Even of a width that cannot be halved, as the model before did with its own."""
    cache = DynamicKVCache()
    llama.forward(tokens(2, 5), cache)
    cache.crop(5)
    values = torch.randn(1, 4, 3, 5)
    cache.update([KVState(values, values)])
    assert torch.equal(cache.get_kv_states()[0].values, values)


def test_what_a_forward_returned_stays_as_it_was_when_the_model_runs_again(llama):
    cache, query = llama.new_cache(1), tokens(1, 4)
    for _ in range(3):  # windows are captured the second time
        before = llama.forward(query, cache, layers=(1,))
        kept = [tensor.clone() for tensor in before]
        after = llama.forward(tokens(1, 4), cache, layers=(1,))
        assert all(torch.equal(tensor, copy) for tensor, copy in zip(before, kept, strict=True))
        assert not any(
            torch.equal(tensor, other) for tensor, other in zip(before, after, strict=True)
        )


def test_tokens_of_another_type_are_refused_and_not_read_as_if_they_were_int64():
    model = made(SOURCE, "onnx")
    cache, query = model.new_cache(1), torch.tensor([[7]])
    model.forward(query, cache)
    for others in (
        query.view(torch.int32)[:, :1],
        torch.tensor([[7]], dtype=torch.int16),
    ):  # the first lies where those lay
        with pytest.raises(ValueError, match=r"query_token_ids must be int64, got torch\.int"):
            model.forward(others, cache)


def test_half_precision_runs_with_torch_operations():
    expected = direct_logits(SOURCE, [3, 1, 4, 1, 5])
    model = LlamaLanguageModel.from_transformers(halved(random_model(FAMILIES["llama"]())))
    assert model.executor == "torch"
    logits = model.forward(torch.tensor([[3, 1, 4, 1, 5]]), model.new_cache(1))[0]
    assert logits.dtype == torch.bfloat16
    assert (logits - expected).norm() < 0.05 * expected.norm()


def test_a_model_of_another_family_is_refused_with_the_reason():
    source = random_model(
        GPT2Config(vocab_size=VOCAB, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1)
    )
    with pytest.raises(ValueError, match="model_type is gpt2"):
        LlamaLanguageModel.from_transformers(source)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hidden_act": "gelu"}, "gelu"),
        ({"mlp_bias": True}, "bias"),
        (
            {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            "dynamic",
        ),
    ],
)
def test_what_cannot_be_run_exactly_is_named(change, reason):
    found = is_supported(LlamaConfig(**SHAPE, **change))
    assert found is not None
    assert reason in found


class Elsewhere:
    """Has a `KVCache`'s members, but states of two rows."""

    def get_kv_states(self) -> list[KVState]:
        return [KVState(torch.zeros(2, 2, 1, 16), torch.zeros(2, 2, 1, 16)) for _ in range(2)]

    def get_num_tokens(self) -> int:
        return 1

    def update(self, kv_states: Sequence[KVState]) -> None:
        raise AssertionError("a refused forward must not store anything")

    def crop(self, num_tokens_crop: int) -> None:
        raise AssertionError("a refused forward must not store anything")


def test_bad_input_is_refused_by_the_name_of_the_argument(llama):
    cache = llama.new_cache(2)
    two = LlamaLanguageModel.from_transformers(
        random_model(LlamaConfig(**SHAPE | {"num_hidden_layers": 1}))
    )
    of_another: KVCache = two.new_cache(1)
    two.forward(tokens(1, 2), of_another)
    not_a_cache: Any = {}
    for query, given, options, message in (
        (tokens(2, 0), cache, {}, r"query_token_ids must have shape"),
        (torch.zeros(3, dtype=torch.int64), cache, {}, r"query_token_ids must have shape"),
        (tokens(3, 1), cache, {}, r"query_token_ids has 3 rows, kv_cache has 2"),
        (tokens(1, 1), Elsewhere(), {}, r"query_token_ids has 1 rows, kv_cache has 2"),
        (tokens(2, 2), cache, {"num_logits": 3}, r"num_logits must be between 1 and"),
        (torch.tensor([[1], [VOCAB]]), cache, {}, r"query_token_ids must be in \[0, 97\)"),
        (tokens(2, 1), not_a_cache, {}, r"kv_cache must be a KVCache, got dict"),
        (tokens(1, 1), of_another, {}, "kv_cache belongs to another model"),
    ):
        with pytest.raises(ValueError, match=message):
            llama.forward(query, given, **options)
    assert cache.lengths == [0, 0]


def test_an_executor_that_cannot_run_the_model_is_refused(monkeypatch):
    unknown: Any = "tpu"
    with pytest.raises(ValueError, match="executor must be"):
        LlamaLanguageModel.from_transformers(SOURCE, unknown)
    monkeypatch.setattr("naive_speculate.models.llama.model._ONNXRUNTIME", "99")
    with pytest.raises(ValueError, match=r"needs the packages .* and onnxruntime>=99"):
        LlamaLanguageModel.from_transformers(SOURCE, "onnx")
    # no package would help
    with pytest.raises(ValueError, match='executor "onnx" runs float32 on the CPU'):
        LlamaLanguageModel.from_transformers(halved(random_model(FAMILIES["llama"]())), "onnx")


# Windows captured once for a cache and played again give the same, and hold no memory longer than
# their cache


class Captures:
    """A model whose windows are captured; `tried` counts the captures, which raise `error` if
    there is one."""

    def __init__(self) -> None:
        self.model = made(SOURCE, "graphs")
        self.error: Exception | None = None
        self.tried = 0
        self.model._forward.graphs._capture = self._capture

    def _capture(self, compute: Callable[[], torch.Tensor]) -> Any:
        self.tried += 1
        if self.error is not None:
            raise self.error
        return compute_again(compute)

    def rows(self, count: int = 1) -> Rows:
        return Rows(self.model, SOURCE, count)

    def held(self, cache: Any) -> bool:
        """Whether something is captured for a cache."""
        return bool(self.model._forward.graphs._caches[cache].captured)


@pytest.fixture
def graphs():
    return Captures()


def test_captured_windows_follow_a_cache_that_grows_and_serves_again_clean(graphs):
    rows = graphs.rows()
    rows.forward(500, [0])  # the buffers hold 512
    for _ in range(4):
        rows.forward(5, [0], crop=[1])
        rows.forward(1, [0])
    assert graphs.tried == 4  # two widths, before and after it grew
    graphs.model.recycle(rows.cache)
    again = graphs.rows()
    assert again.cache is rows.cache
    assert again.cache.get_num_tokens() == 0
    assert all(not state.keys.any() and not state.values.any() for state in again.cache.buffers())
    again.forward(5, [0], crop=[5])
    again.forward(1, [0])
    assert graphs.tried == 4
    assert graphs.rows().cache is not rows.cache


def test_a_large_cache_is_not_kept_nor_what_was_captured_for_it(graphs):
    rows = graphs.rows()
    rows.cache.reserve(1500)
    for _ in range(3):
        rows.forward(1, [0])
    assert graphs.held(rows.cache)
    graphs.model.recycle(rows.cache)
    buffer = weakref.ref(rows.cache.buffers()[0].keys)
    del rows
    gc.collect()
    assert buffer() is None


class Reads(TorchDispatchMode):
    """Notes the memory that a computation reads and has not allocated itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, StorageWeakRef] = {}
        self._own = set[int]()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        for tensor in _tensors((args, kwargs)):
            if (storage := tensor.untyped_storage())._cdata not in self._own:
                self.found[storage._cdata] = StorageWeakRef(storage)
        result = function(*args, **kwargs or {})
        self._own |= {
            tensor.untyped_storage()._cdata for tensor in _tensors(result)
        } - self.found.keys()
        return result


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


def test_what_a_captured_window_reads_is_kept_with_it(graphs):
    """A CUDA graph has only their addresses, and this capture has none of them either."""
    reads = Reads()

    def capture(compute: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        with reads:
            return lambda: None, compute()

    graphs.model._forward.graphs._capture = capture
    rows = graphs.rows()
    for _ in range(2):
        rows.forward(3, [0])
    assert graphs.held(rows.cache)
    gc.collect()
    assert len(reads.found) > len(SOURCE.model.layers)
    assert not any(storage.expired() for storage in reads.found.values())


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError(), RuntimeError("operation not permitted when stream is capturing")],
)
def test_where_a_capture_fails_decoding_goes_on_without(graphs, error, caplog):
    """Where memory is short for this cache only, else for good, with a warning."""
    graphs.error = error
    rows = graphs.rows(2)
    for _ in range(4):
        rows.forward(3, [0, 1], crop=[1, 2])
    assert graphs.tried == 1
    graphs.error = None
    others = graphs.rows()
    for _ in range(3):
        others.forward(3, [0], crop=[1])
    lasting = "CUDA graphs are not used" in caplog.text
    assert lasting == (not isinstance(error, torch.OutOfMemoryError))
    assert lasting or graphs.held(others.cache)
    assert graphs.tried == (1 if lasting else 2)


def test_captured_windows_give_hidden_states_with_their_logits(graphs):
    models = graphs.model, made(SOURCE, "torch")
    caches = [model.new_cache(2) for model in models]
    for number, layers in enumerate([(2, 1), (2, 1), (), (2, 1), (), (0,), (2, 1), (0,)]):
        query = tokens(2, 4)
        found, expected = (
            model.forward(query, cache, layers=layers)
            for model, cache in zip(models, caches, strict=True)
        )
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        for cache in caches:
            cache.crop([number % 4, 1])
    assert graphs.tried == 3  # once for each choice of layers


def test_where_not_all_logits_are_wanted_nothing_is_captured(graphs):
    cache = graphs.model.new_cache(1)
    for _ in range(3):
        logits, features = graphs.model.forward(tokens(1, 5), cache, layers=(1,), num_logits=1)
        assert logits.shape[1] == 1
        assert features.shape == (1, 5, 64)
    assert graphs.tried == 0
