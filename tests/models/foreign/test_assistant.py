"""Gemma 4's assistants: ours draft what transformers' `generate` drafts, losslessly, and broken
ones end in one line."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.models import wrap
from naive_speculate.models.foreign.assistant import embedded_and_norm
from naive_speculate.models.heads.checkpoint import load_head
from naive_speculate.models.heads.files import is_head
from naive_speculate.testing import prove_lossless
from tests.gemmas import TARGETS, WINDOW, made, proposed, sharing_layers
from tests.speculate.rows import same_alone, same_as_plain, windows
from tests.tiny import tiny_llama, words

pytestmark = pytest.mark.usefixtures(sharing_layers.__name__)
PROMPT = [3, 5, 7, 11, 2, 9, 1, 4]
COUNT = 3


def params(**options) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 12, "ignore_eos": True} | options)


def paired(target, assistant, folder: Path, dtype=torch.float32) -> ModelPair:
    assistant.save_pretrained(folder)
    target = wrap(target.to(dtype))
    return ModelPair(target, head=load_head(folder, target, torch.device("cpu"), dtype))


@pytest.fixture(scope="module", params=TARGETS)
def both(request, tmp_path_factory):
    """transformers' target and assistant, and the pair of ours."""
    models = made(request.param)
    return *models, paired(*models, tmp_path_factory.mktemp("assistant"))


@torch.no_grad()
def test_the_logits_of_two_texts_in_one_batch_are_transformers_own(both):
    """One text is longer than the sliding window, the other shorter."""
    target, assistant, pair = both
    texts = [PROMPT + PROMPT, PROMPT[: WINDOW - 2]]
    for text in texts:  # so that the last token is the target's choice
        text.append(int(target(torch.tensor([text])).logits[0, -1].argmax()))
    expected = [proposed(target, assistant, text, COUNT) for text in texts]
    head, model = pair.head, pair.target
    cache = model.new_cache(2)
    states = []
    for row, text in enumerate(texts):
        ids, view = torch.tensor([text[:-1]]), cache.rows([row])
        states.append(model.forward(ids, view, num_logits=1, layers=head.layers)[1][0, -1])
    embed, norm = embedded_and_norm(model)
    state, seen = norm(torch.stack(states)), head.see(cache.all_rows(), head.sources(model))
    token_ids = torch.tensor([text[-1] for text in texts])
    for index in range(COUNT):
        logits, state = head.draft(embed(token_ids), state, seen)
        wanted = torch.stack([each[index] for _, each in expected])
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
        token_ids = logits.argmax(-1)
        assert token_ids.tolist() == [tokens[index] for tokens, _ in expected]


def test_every_window_of_a_run_is_what_generate_proposes_after_that_text(both):
    target, assistant, pair = both
    options = {"drafter": "assistant", "num_draft_tokens": COUNT}
    run = same_as_plain(SpeculativeDecoder(pair), PROMPT, params(temperature=0), **options)
    seen = list(windows(run.trace.events, PROMPT))
    assert len(seen) > 4
    assert run.trace.started.head_layers == [4]
    for text, window in seen[1:-1]:  # the first text ends with the prompt
        drafts, _ = proposed(target, assistant, text, len(window))
        assert [event.token_id for event in window] == drafts


def toy(folder: Path, name: str, **sizes) -> ModelPair:
    return paired(*made(name, seed=2, **sizes), folder, torch.float64)


@pytest.mark.parametrize(
    ("name", "sizes", "verifier", "options"),
    [
        ("gemma 4", {"vocab_size": 2}, "speculative_sampling", {"max_tokens": 3}),
        ("shared", {"vocab_size": 12}, "speculative_sampling", {"max_tokens": 2, "top_k": 3}),
        ("gemma 4", {"vocab_size": 2}, "block_verification", {"max_tokens": 3, "top_p": 0.8}),
    ],
)
def test_the_output_distribution_is_the_target_s(tmp_path, name, sizes, verifier, options):
    pair = toy(tmp_path, name, **sizes)
    settings = params(temperature=1.5, **options)
    given = {"pair": pair, "prompt": [1, 0, 1], "params": settings, "num_draft_tokens": 2}
    proof = prove_lossless(  # its norms compute in float32
        drafter="assistant", verifier=verifier, **given, tolerance=1e-6
    )
    assert proof.lossless, str(proof)


@pytest.mark.parametrize("chunk", [4, 512])
def test_a_batch_row_equals_the_row_alone(tmp_path, monkeypatch, chunk):
    """Prompts of different lengths, also in chunks; layers share keys and values."""
    monkeypatch.setattr("naive_speculate.infer.slots.PREFILL_CHUNK", chunk)
    decoder = SpeculativeDecoder(toy(tmp_path, "shared"))
    options = {"drafter": "assistant", "num_draft_tokens": 3}
    settings = [params(seed=row, temperature=row % 2) for row in range(3)]
    found = same_alone(decoder, [PROMPT * 2, [1, 5], PROMPT[:5]], settings, **options)
    assert all(result.metrics.num_draft_tokens > 6 for result in found)
    assert decoder.generate([7], params(temperature=0), **options).metrics.num_draft_tokens > 6


def test_samples_of_one_prompt_draft_from_their_first_step_on(tmp_path):
    decoder = SpeculativeDecoder(toy(tmp_path, "gemma 4"))
    options = {"drafter": "assistant", "num_draft_tokens": 3}
    several = decoder.generate(PROMPT, params(temperature=0, n=2), **options)
    firsts = [next(windows(each.trace.events, PROMPT)) for each in several.outputs]
    drafts = [[event.token_id for event in window] for _, window in firsts]
    assert [text for text, _ in firsts] == [PROMPT, PROMPT]
    assert drafts[0] == drafts[1]
    assert len(drafts[0]) == 3


@pytest.mark.parametrize("num_logits", [1, 3])
def test_hidden_states_are_complete_where_layers_share_keys(both, num_logits):
    """With fewer logits than tokens, transformers computes shared layers at these tokens only."""
    model, ids = both[2].target, torch.tensor([PROMPT])
    found = [
        model.forward(ids, model.new_cache(1).all_rows(), num_logits=count, layers=[1, 4])
        for count in (None, num_logits)
    ]
    torch.testing.assert_close(found[1][1], found[0][1])
    torch.testing.assert_close(found[1][0], found[0][0][:, -num_logits:])


ORDER = "masked_embedding.token_ordering"
BROKEN = {
    "no first projection": (
        {},
        {"pre_projection.weight": None},
        "pre_projection.weight is missing",
    ),
    "no embeddings": ({}, {"model.embed_tokens.weight": None}, "embed_tokens.weight is missing"),
    "no layer": (
        {},
        {"model.layers.1.mlp.down_proj.weight": None},
        r"layers\.1\.mlp\.down_proj\.weight is missing",
    ),
    "no order": ({}, {ORDER: None}, f"{ORDER} is missing"),
    "misshapen": (
        {},
        {"model.layers.0.self_attn.q_proj.weight": torch.ones(8, 12)},
        r"layers\.0\.self_attn\.q_proj\.weight is \[8, 12\], its configuration requires \[32, 12\]",
    ),
    "an order with a token twice": (
        {},
        {ORDER: torch.zeros(48, dtype=torch.int64)},
        f"{ORDER} must have each of the 48 tokens once",
    ),
    "quantised": (
        {},
        {"post_projection.weight": torch.zeros(16, 12, dtype=torch.int8)},
        "post_projection.weight is torch.int8; quantised",
    ),
    "keys of its own": (
        {},
        {"model.layers.0.self_attn.k_proj.weight": torch.ones(16, 12)},
        r"it holds layers\.0\.self_attn\.k_proj\.weight, which is not supported",
    ),
    "another width": ({"backbone_hidden_size": 20}, {}, "its backbone_hidden_size is 20, the targ"),
    "no width": ({"backbone_hidden_size": None}, {}, "its backbone_hidden_size is None, the targ"),
    "an unread key": ({"num_centroid_rounds": 2}, {}, "has num_centroid_rounds = 2, which is not"),
    "clusters": ({"num_centroids": 7}, {}, "num_centroids must divide the vocabulary of 48 tokens"),
    "many clusters": (
        {"centroid_intermediate_top_k": 13},
        {},
        "centroid_intermediate_top_k must be between 1 and 12, got 13",
    ),
    "no layers": ({"text_config": None}, {}, "text_config must be a mapping, got None"),
    "layers of another family": (
        {"text_config": {"model_type": "llama"}},
        {},
        "text_config.model_type is 'llama', not one of",
    ),
}
IN_LAYERS = {
    "vocab_size": (40, "its vocab_size is 40, the target's vocab_size is 48"),
    "layer_scales": ([1], r"has text_config\.layer_scales = \[1\], which is not read"),
    "hidden_activation": ("silu", "hidden_activation is 'silu', only 'gelu_pytorch_tanh' is supp"),
    "use_bidirectional_attention": ("all", "use_bidirectional_attention 'all' is not supported"),
    "num_kv_shared_layers": (1, "num_kv_shared_layers is 1, only all 2 layers can be shared"),
    "layer_types": (
        ["chunked_attention"] * 2,
        "layer_types must be 2 of sliding_attention, full_att",
    ),
    "num_attention_heads": (3, r"q_proj\.weight is \[32, 12\], its configuration requires \[24"),
    "sliding_window": (0, "text_config.sliding_window is 0"),
}


def refused(folder: Path, target, message: str) -> None:
    assert is_head(folder)
    with pytest.raises(ValueError, match=f"^head='.*' cannot be loaded: .*{message}") as caught:
        load_head(folder, target, torch.device("cpu"))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    target, assistant = made("clusters")
    assistant.save_pretrained(folder)
    return folder, wrap(target)


def changed(saved: Path, folder: Path, config: dict, tensors: dict) -> Path:
    """A copy with other options and tensors; None removes one."""
    own = json.loads((saved / "config.json").read_text(encoding="utf-8")) | config
    (folder / "config.json").write_text(json.dumps(own), encoding="utf-8")
    stored = load_file(saved / "model.safetensors") | tensors
    kept = {name: tensor for name, tensor in stored.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_assistant_ends_in_one_line(saved, tmp_path, kind):
    config, tensors, message = BROKEN[kind]
    refused(changed(saved[0], tmp_path, config, tensors), saved[1], message)


@pytest.mark.parametrize("key", IN_LAYERS)
def test_an_assistant_with_other_layers_ends_in_one_line(saved, tmp_path, key):
    value, message = IN_LAYERS[key]
    text = json.loads((saved[0] / "config.json").read_text(encoding="utf-8"))["text_config"]
    folder = changed(saved[0], tmp_path, {"text_config": text | {key: value}}, {})
    refused(folder, saved[1], message)


def test_a_target_that_it_was_not_made_for_is_refused(saved, tmp_path):
    folder, target = saved
    message = "an assistant, which attends to the keys and values of a target of Gemma 4"
    refused(folder, wrap(tiny_llama(1, 0), executor="transformers"), f".*{message}.* is llama")
    refused(folder, wrap(tiny_llama(1, 0)), message)
    wider = wrap(made("gemma 4", head_dim=16)[0])
    refused(folder, wider, "has 4 heads of width 8 for layers of sliding_attention; its target's")
    head = load_head(folder, target, torch.device("cpu"))
    with pytest.raises(ValueError, match=r"^head '.*' has 4 heads of width 8"):
        ModelPair(wider, head=head)
    with pytest.raises(
        ValueError, match=r"^drafter is 'assistant', but this pair has no assistant"
    ):
        SpeculativeDecoder(ModelPair(target)).generate([1], params(), drafter="assistant")


def test_load_pair_takes_an_assistant_as_head_or_as_draft_and_its_drafter_is_the_default(
    saved, tmp_path
):
    target, _ = made("clusters")
    target.save_pretrained(tmp_path)
    words(48).save_pretrained(tmp_path)
    for role in ("head", "draft"):
        pair = load_pair(tmp_path, **{role: saved[0]})
        assert pair.default_drafter == "assistant"
        assert pair.names == {"target": tmp_path.name, "assistant": saved[0].name}
        assert 0 < pair.num_parameters["assistant"] < pair.num_parameters["target"]
        assert pair.costs("assistant").draft == pair._share(pair.head)
