"""The fast models of the Llama family give transformers' logits, whatever the cache holds."""

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.infer import BatchLanguageModel, DynamicKVCache, KVCache, KVState, TransformersLanguageModel
from naive_speculate.infer.llama_graphs import GraphLlama
from naive_speculate.infer.llama_model import LlamaLanguageModel
from naive_speculate.infer.llama_torch import TorchLlama
from naive_speculate.infer.llama_weights import is_supported, rotary_of, shape_of, weights_of

VOCAB = 97
TOLERANCE = 1e-4
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 640,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 128}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: LlamaConfig(**SHAPE),
    "llama tied": lambda: LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "llama biased": lambda: LlamaConfig(**SHAPE, attention_bias=True),
    "llama all heads": lambda: LlamaConfig(**SHAPE | {"num_key_value_heads": 4}),
    "llama narrow heads": lambda: LlamaConfig(**SHAPE, head_dim=8),
    "llama linear rope": lambda: LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    ),
    "llama3 rope": lambda: LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "llama yarn": lambda: LlamaConfig(**SHAPE, rope_parameters=YARN),
    "mistral": lambda: MistralConfig(**SHAPE, sliding_window=None),
    "mistral window": lambda: MistralConfig(**SHAPE, sliding_window=6),
    "qwen2": lambda: Qwen2Config(**SHAPE),
    "qwen2 mixed windows": lambda: Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=5, max_window_layers=1),
    "qwen3": lambda: Qwen3Config(**SHAPE, head_dim=32),
    "qwen3 tied": lambda: Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True),
}
EXECUTORS = ("onnx", "torch", "graphs")


def random_model(config: Any, seed: int = 0) -> PreTrainedModel:
    """A model whose every parameter matters: also norms and biases are random."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    for parameter in model.parameters():
        centre = 1.0 if parameter.dim() == 1 and parameter.mean() > 0.5 else 0.0
        torch.nn.init.normal_(parameter, centre, 0.2)
    return model


def halved(model: Any) -> PreTrainedModel:
    """The model in bfloat16."""
    return model.to(torch.bfloat16)


def compute_again(compute: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
    """What a CUDA graph does, on the CPU: the same computation on the same tensors, which nothing but their content changes."""
    logits = compute()
    return lambda: (logits.copy_(compute()), None)[1], logits


def made(source: PreTrainedModel, executor: str) -> LlamaLanguageModel:
    if executor != "graphs":
        return LlamaLanguageModel.from_transformers(source, executor)
    lean = TorchLlama(shape_of(source), weights_of(source), rotary_of(source))
    return LlamaLanguageModel(TransformersLanguageModel(source), GraphLlama(lean, compute_again), "torch")


@pytest.fixture(scope="module", params=FAMILIES)
def source(request: pytest.FixtureRequest) -> PreTrainedModel:
    return random_model(FAMILIES[request.param]())


@pytest.fixture(params=EXECUTORS)
def model(request: pytest.FixtureRequest, source: PreTrainedModel) -> LlamaLanguageModel:
    return made(source, request.param)


@pytest.fixture(scope="module", params=EXECUTORS)
def llama(request: pytest.FixtureRequest) -> LlamaLanguageModel:
    return made(random_model(FAMILIES["llama"]()), request.param)


def tokens(rows: int, count: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (rows, count))


def direct_logits(source: PreTrainedModel, token_ids: Sequence[int]) -> torch.Tensor:
    """transformers' logits at every position of a sequence, without any cache."""
    with torch.inference_mode():
        return source(torch.tensor([token_ids]), use_cache=False).logits[0]


class Rows:
    """Runs forwards over a ragged cache, knows what every row holds, and compares with the whole sequence run afresh."""

    def __init__(self, model: BatchLanguageModel, source: PreTrainedModel, count: int) -> None:
        self.model, self.source = model, source
        self.cache: Any = model.new_cache(count)
        self.held: list[list[int]] = [[] for _ in range(count)]

    def forward(
        self, count: int, rows: Sequence[int], crop: Sequence[int] | None = None, num_logits: int | None = None
    ) -> None:
        view = self.cache.rows(rows)
        query = tokens(len(rows), count)
        logits = self.model.forward(query, view, num_logits=num_logits)
        wanted = num_logits or count
        assert logits.shape == (len(rows), wanted, VOCAB)
        for row, new, got in zip(rows, query.tolist(), logits, strict=True):
            self.held[row] += new
            expected = direct_logits(self.source, self.held[row])[-wanted:]
            torch.testing.assert_close(got, expected, rtol=0, atol=TOLERANCE)
        if crop is not None:
            view.crop(list(crop))
            for row, surplus in zip(rows, crop, strict=True):
                self.held[row] = self.held[row][: len(self.held[row]) - surplus]
        assert self.cache.lengths == [len(held) for held in self.held]


def test_captured_windows_follow_a_cache_that_grows_and_serves_again() -> None:
    source = random_model(FAMILIES["llama"]())
    model = made(source, "graphs")
    captured = []
    graphs = model._forward
    assert isinstance(graphs, GraphLlama)
    graphs._capture = lambda compute: captured.append(compute) or compute_again(compute)
    rows = Rows(model, source, 1)
    rows.forward(500, [0])  # the buffers hold 512
    for _ in range(4):
        rows.forward(5, [0], crop=[1])
        rows.forward(1, [0])
    assert len(captured) == 4  # two widths, before and after it grew
    model.recycle(rows.cache)
    again = Rows(model, source, 1)
    assert again.cache is rows.cache
    again.forward(5, [0], crop=[5])
    again.forward(1, [0])
    assert len(captured) == 4
    others = Rows(model, source, 1)
    assert others.cache is not rows.cache


@pytest.mark.parametrize("executor", EXECUTORS)
def test_rows_can_be_copied_after_a_cache_has_grown(executor: str) -> None:
    models = [made(random_model(FAMILIES["llama"](), seed), executor) for seed in (0, 1)]
    decoder = SpeculativeDecoder(ModelPair(*models))
    prompt = [7 + number % 50 for number in range(560)]
    params = SamplingParams(n=2, max_tokens=4, seed=1, ignore_eos=True)
    outputs = decoder.generate(prompt, params, num_draft_tokens=3).outputs
    assert [len(output.token_ids) for output in outputs] == [4, 4]
    ends = [SamplingParams(max_tokens=count, temperature=0, ignore_eos=True) for count in (30, 2, 30)]
    together = decoder.generate([prompt, prompt, prompt], ends, num_draft_tokens=3)
    assert together[0].token_ids == together[2].token_ids


def test_a_spare_cache_is_clean() -> None:
    model = made(random_model(FAMILIES["llama"]()), "graphs")
    cache = model.new_cache(1)
    model.forward(tokens(1, 600), cache)
    model.recycle(cache)
    again = model.new_cache(1)
    assert again is cache
    assert again.get_num_tokens() == 0
    assert all(not state.keys.any() and not state.values.any() for state in again.buffers())


def test_a_large_cache_is_not_kept_nor_what_was_captured_for_it() -> None:
    source = random_model(FAMILIES["llama"]())
    model = made(source, "graphs")
    rows = Rows(model, source, 1)
    rows.cache.reserve(1500)
    for _ in range(3):
        rows.forward(1, [0])
    assert model._forward._caches[rows.cache].captured
    model.recycle(rows.cache)
    buffer = weakref.ref(rows.cache.buffers()[0].keys)
    del rows
    gc.collect()
    assert buffer() is None


def test_where_memory_is_short_nothing_more_is_captured_for_a_cache() -> None:
    source = random_model(FAMILIES["llama"]())
    model = made(source, "graphs")
    tried = []

    def short(compute: Callable[[], torch.Tensor]) -> Any:
        tried.append(compute)
        raise torch.OutOfMemoryError

    assert isinstance(model._forward, GraphLlama)
    model._forward._capture = short
    rows = Rows(model, source, 1)
    for _ in range(4):
        rows.forward(3, [0], crop=[1])
    assert len(tried) == 1
    model._forward._capture = compute_again
    others = Rows(model, source, 1)
    for _ in range(3):
        others.forward(3, [0], crop=[1])
    assert model._forward._caches[others.cache].captured


def test_a_forward_that_cannot_be_captured_runs_without(caplog: pytest.LogCaptureFixture) -> None:
    source = random_model(FAMILIES["llama"]())
    model = made(source, "graphs")
    tried = []

    def refuse(compute: Callable[[], torch.Tensor]) -> Any:
        tried.append(compute)
        raise RuntimeError("operation not permitted when stream is capturing")

    assert isinstance(model._forward, GraphLlama)
    model._forward._capture = refuse
    rows = Rows(model, source, 2)
    for _ in range(4):
        rows.forward(3, [0, 1], crop=[1, 2])
    assert len(tried) == 1
    assert "CUDA graphs are left out" in caplog.text


def test_decoding_with_captured_windows_gives_the_same_tokens() -> None:
    pair = [random_model(FAMILIES["llama"](), seed) for seed in (0, 1)]
    plain, graphs = (
        SpeculativeDecoder(ModelPair(*(made(model, executor) for model in pair))) for executor in ("torch", "graphs")
    )
    params = [SamplingParams(max_tokens=40, seed=seed, temperature=0.7, ignore_eos=True) for seed in range(3)]
    prompts = [[5, 6, 7], [8, 9], [10]]
    expected = plain.generate(prompts, params, num_draft_tokens=3)
    for _ in range(2):  # the second time with what the first has captured
        got = graphs.generate(prompts, params, num_draft_tokens=3)
        assert [result.token_ids for result in got] == [result.token_ids for result in expected]
        alone = [graphs.generate(prompt, one, num_draft_tokens=3) for prompt, one in zip(prompts, params, strict=True)]
        assert [result.token_ids for result in alone] == [result.token_ids for result in expected]


def test_prefill_then_windows_and_crops_give_transformers_logits_at_every_position(
    model: LlamaLanguageModel, source: PreTrainedModel
) -> None:
    rows = Rows(model, source, 1)
    rows.forward(11, [0])
    for count, surplus in ((1, 0), (5, 3), (5, 5), (1, 1), (9, 2), (2, 0)):
        rows.forward(count, [0], crop=[surplus])


def test_rows_of_different_lengths_give_transformers_logits(model: LlamaLanguageModel, source: PreTrainedModel) -> None:
    rows = Rows(model, source, 4)
    everything = [0, 1, 2, 3]
    rows.forward(7, everything, crop=[0, 2, 4, 7])  # right-padded prompts, one of them empty
    rows.forward(1, everything)
    rows.forward(5, everything, crop=[4, 3, 0, 1])
    rows.forward(5, [2], crop=[2])
    rows.forward(4, [1, 2], num_logits=2)
    rows.forward(3, [3, 0], crop=[0, 3])
    rows.forward(2, [3, 1, 2])
    rows.forward(1, [2, 0])


def test_caches_grow_beyond_their_first_capacity(model: LlamaLanguageModel, source: PreTrainedModel) -> None:
    rows = Rows(model, source, 2)
    rows.forward(120, [0])
    rows.forward(5, [0, 1])
    rows.forward(150, [1])
    rows.forward(5, [0, 1], crop=[5, 2])
    rows.cache.add_rows(2)
    rows.held += [[], []]
    rows.forward(3, [0, 1, 2, 3])


def test_a_plain_cache_is_read_and_extended(model: LlamaLanguageModel, source: PreTrainedModel) -> None:
    cache, reference_cache = DynamicKVCache(), DynamicKVCache()
    reference = TransformersLanguageModel(source)
    for count, surplus in ((6, 2), (1, 0), (5, 4), (3, 0)):
        query = tokens(2, count)
        expected = reference.forward(query, reference_cache)
        torch.testing.assert_close(model.forward(query, cache), expected, rtol=0, atol=TOLERANCE)
        for ours, theirs in zip(cache.get_kv_states(), reference_cache.get_kv_states(), strict=True):
            torch.testing.assert_close(ours.keys, theirs.keys, rtol=0, atol=TOLERANCE)
            torch.testing.assert_close(ours.values, theirs.values, rtol=0, atol=TOLERANCE)
        cache.crop(surplus)
        reference_cache.crop(surplus)


def test_it_describes_itself_as_the_transformers_model_does(model: LlamaLanguageModel, source: PreTrainedModel) -> None:
    reference = TransformersLanguageModel(source)
    assert isinstance(model, BatchLanguageModel)
    for name in ("eos_token_id", "eos_token_ids", "name", "vocab_size", "max_positions", "device", "num_parameters"):
        assert getattr(model, name) == getattr(reference, name)


def test_a_ragged_cache_of_one_model_serves_transformers_too(llama: LlamaLanguageModel) -> None:
    source = random_model(FAMILIES["llama"]())
    reference = TransformersLanguageModel(source)
    cache = llama.new_cache(1)
    first, second = tokens(1, 6), tokens(1, 3)
    llama.forward(first, cache)
    logits = reference.forward(second, cache)
    expected = direct_logits(source, first[0].tolist() + second[0].tolist())[-3:]
    torch.testing.assert_close(logits[0], expected, rtol=0, atol=TOLERANCE)


def test_logits_stay_as_they_were_when_the_model_runs_again(llama: LlamaLanguageModel) -> None:
    cache, query = llama.new_cache(1), tokens(1, 4)
    logits = llama.forward(query, cache)
    before = logits.clone()
    llama.forward(query, cache)
    assert torch.equal(logits, before)


def test_half_precision_runs_with_torch_operations() -> None:
    source = random_model(FAMILIES["llama"]())
    expected = direct_logits(source, [3, 1, 4, 1, 5])
    model = LlamaLanguageModel.from_transformers(halved(source))
    assert model.executor == "torch"
    logits = model.forward(torch.tensor([[3, 1, 4, 1, 5]]), model.new_cache(1))[0]
    assert logits.dtype == torch.bfloat16
    assert (logits - expected).norm() < 0.05 * expected.norm()


def test_a_model_of_another_family_is_refused_with_the_reason() -> None:
    source = random_model(GPT2Config(vocab_size=VOCAB, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1))
    with pytest.raises(ValueError, match="model_type is gpt2"):
        LlamaLanguageModel.from_transformers(source)


def test_a_llama_on_the_cpu_runs_with_onnx_runtime() -> None:
    assert LlamaLanguageModel.from_transformers(random_model(FAMILIES["llama"]())).executor == "onnx"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hidden_act": "gelu"}, "gelu"),
        ({"mlp_bias": True}, "bias"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "dynamic"),
    ],
)
def test_what_cannot_be_run_exactly_is_named(change: dict[str, Any], reason: str) -> None:
    found = is_supported(LlamaConfig(**SHAPE, **change))
    assert found is not None
    assert reason in found


class Elsewhere:
    """Has a `KVCache`'s members, but states of two rows."""

    def get_kv_states(self) -> list[KVState]:
        return [KVState(torch.zeros(2, 2, 1, 16), torch.zeros(2, 2, 1, 16)) for _ in range(3)]

    def get_num_tokens(self) -> int:
        return 1

    def update(self, kv_states: Sequence[KVState]) -> None:
        raise AssertionError("a refused forward must not store anything")

    def crop(self, num_tokens_crop: int) -> None:
        raise AssertionError("a refused forward must not store anything")


def test_bad_input_is_refused_by_the_name_of_the_argument(llama: LlamaLanguageModel) -> None:
    cache = llama.new_cache(2)
    with pytest.raises(ValueError, match=r"query_token_ids must have shape"):
        llama.forward(tokens(2, 0), cache)
    with pytest.raises(ValueError, match=r"query_token_ids must have shape"):
        llama.forward(torch.zeros(3, dtype=torch.int64), cache)
    with pytest.raises(ValueError, match=r"query_token_ids has 3 rows, kv_cache has 2"):
        llama.forward(tokens(3, 1), cache)
    with pytest.raises(ValueError, match=r"query_token_ids has 1 rows, kv_cache has 2"):
        llama.forward(tokens(1, 1), Elsewhere())
    with pytest.raises(ValueError, match=r"num_logits must be between 1 and"):
        llama.forward(tokens(2, 2), cache, num_logits=3)
    with pytest.raises(ValueError, match=r"query_token_ids must be in \[0, 97\)"):
        llama.forward(torch.tensor([[1], [VOCAB]]), cache)
    not_a_cache: Any = {}
    with pytest.raises(ValueError, match=r"kv_cache must be a KVCache, got dict"):
        llama.forward(tokens(2, 1), not_a_cache)
    assert cache.lengths == [0, 0]


def test_a_cache_of_a_model_of_another_shape_is_refused(llama: LlamaLanguageModel) -> None:
    other = LlamaLanguageModel.from_transformers(random_model(LlamaConfig(**SHAPE | {"num_hidden_layers": 2})))
    cache: KVCache = other.new_cache(1)
    other.forward(tokens(1, 2), cache)
    with pytest.raises(ValueError, match="kv_cache belongs to another model"):
        llama.forward(tokens(1, 1), cache)


def test_an_executor_that_cannot_run_the_model_is_refused() -> None:
    source = random_model(FAMILIES["llama"]())
    unknown: Any = "tpu"
    with pytest.raises(ValueError, match="executor must be"):
        LlamaLanguageModel.from_transformers(source, unknown)
    with pytest.raises(ValueError, match='executor "onnx" runs float32 on the CPU'):
        LlamaLanguageModel.from_transformers(halved(source), "onnx")
