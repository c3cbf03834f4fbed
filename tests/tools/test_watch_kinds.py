"""`watch` records whatever transformers 5.23 drafts with, and refuses what it cannot run."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers.generation.utils as theirs
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    MuseGlimmerAssistantConfig,
    MuseGlimmerAssistantModel,
    Phi3Config,
    Phi3ForCausalLM,
    SynthIDTextWatermarkingConfig,
    WatermarkingConfig,
)

from naive_speculate import watch
from tests.gemmas import made, sharing_layers
from tests.tiny import tiny_llama
from tests.tokenizers_of_tests import byte_level
from tests.tools.test_watching import steps_of
from ui.run.recorded import opened

pytestmark = pytest.mark.usefixtures(sharing_layers.__name__)
PROMPT = [5, 17, 33, 5, 17, 33, 5, 17]
WAYS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "top_k": 0, "temperature": 1.0},
    "warped": {"do_sample": True, "top_k": 9, "temperature": 0.7, "repetition_penalty": 1.2},
}


@dataclass
class Kind:
    """A way of drafting: models, options, and what a trace's settings and models say of it."""

    model: Any
    assistant: Any
    options: dict[str, Any]
    drafter: str
    window: int | None
    roles: dict[str, str]
    draws: bool = True
    ways: dict[str, Any] = field(default_factory=lambda: WAYS)


def dflash(**changes) -> MuseGlimmerAssistantModel:
    """transformers' one DFlash drafter, of the width of `tiny_llama`."""
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 8}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 6}
    sizes |= {"layer_types": ["sliding_attention", "full_attention"], "target_layer_ids": [0, 2]}
    tokens = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0, "mask_token_id": 96}
    config = MuseGlimmerAssistantConfig(**sizes | tokens | {"block_size": 4} | changes)
    return MuseGlimmerAssistantModel(config).eval()


@pytest.fixture(scope="module", params=["dflash", "gemma 4", "shared", "early exit"])
def kind(request):
    if request.param == "dflash":
        roles = {"target": "LlamaForCausalLM", "block": "MuseGlimmerAssistantModel"}
        options = {"speculation_type": "dflash"}
        return Kind(tiny_llama(3, 0), dflash(), options, "block", 3, roles)
    if request.param == "early exit":
        model = tiny_llama(3, 0)
        with torch.no_grad():  # so that its first layers are often right
            for name, weight in model.model.layers[2].named_parameters():
                weight.mul_(0.4 if "norm" not in name else 1)
        model.generation_config.assistant_confidence_threshold = 0.0
        model.generation_config.num_assistant_tokens = 3
        model.generation_config.num_assistant_tokens_schedule = "constant"
        first = "LlamaForCausalLM, first 2 of 3 layers"
        roles = {"target": "LlamaForCausalLM", "draft": first}
        return Kind(model, None, {"assistant_early_exit": 2}, "model", 3, roles)
    target, assistant = made(request.param)
    assistant.generation_config.num_assistant_tokens = 3
    roles = {"target": "Gemma4ForCausalLM", "assistant": "Gemma4AssistantForCausalLM"}
    return Kind(target, assistant, {}, "assistant", 3, roles, draws=False)


def options_of(kind: Kind, way: str) -> dict[str, Any]:
    return {"max_new_tokens": 14, "pad_token_id": 0} | kind.options | kind.ways[way]


@pytest.mark.parametrize("way", WAYS)
def test_tokens_drafts_and_verdicts_are_those_of_plain_generate(kind, way, monkeypatch):
    """The first run is not watched; its drafts are read from its candidate generator."""
    drafted, verdicts, decide = [], [], theirs._speculative_sampling
    make = theirs.GenerationMixin._get_candidate_generator

    def listening(self, *args, **kwargs):
        generator = make(self, *args, **kwargs)
        propose = generator.get_candidates

        def get_candidates(input_ids, **more):
            candidates, logits = propose(input_ids, **more)
            drafted.append(candidates[0, input_ids.shape[1] :].tolist())
            return candidates, logits

        generator.get_candidates = get_candidates
        return generator

    def deciding(*args, **kwargs):
        tokens, matches = decide(*args, **kwargs)
        verdicts.append((int(matches), tokens[0].tolist()))
        return tokens, matches

    monkeypatch.setattr(theirs.GenerationMixin, "_get_candidate_generator", listening)
    monkeypatch.setattr(theirs, "_speculative_sampling", deciding)
    ids, options = torch.tensor([PROMPT]), options_of(kind, way)
    torch.manual_seed(3)
    plain = kind.model.generate(
        ids, attention_mask=torch.ones_like(ids), assistant_model=kind.assistant, **options
    )[0, len(PROMPT) :].tolist()
    monkeypatch.undo()
    trace = watch(kind.model, kind.assistant, PROMPT, seed=3, **options)
    assert trace.token_ids == plain
    steps = steps_of(trace)
    assert [drafts for drafts, _, _ in steps] == [drafts for drafts in drafted if drafts]
    assert len(steps) > 3
    if verdicts:
        for (_, kept, tokens), (matches, theirs_) in list(zip(steps, verdicts, strict=True))[:-1]:
            assert (kept, tokens) == (matches, theirs_)
    else:  # the target's most probable tokens
        assert way == "greedy"


def test_the_trace_says_what_drafted_and_whether_that_is_lossless(kind):
    """Gemma 4's assistants draft their most probable tokens, which are judged as if drawn."""
    for way in ("greedy", "sampled"):
        trace = watch(kind.model, kind.assistant, PROMPT, **options_of(kind, way))
        settings = trace.started.settings
        assert (settings["drafter"], settings["num_draft_tokens"]) == (kind.drafter, kind.window)
        assert trace.started.models == kind.roles
        assert settings["lossy"] == (way == "sampled" and not kind.draws)
        assert len(opened("run.jsonl", trace.to_jsonl()).events) == len(trace)
        if way == "sampled":
            judged = [event for event in trace if event.kind in ("accepted", "rejected")]
            assert {event.kind for event in judged} <= {"accepted", "rejected"}
            assert all((e.uniform <= e.accept_prob) == (e.kind == "accepted") for e in judged)
            same = all(event.expected_accept == event.accept_prob for event in judged)
            assert same != kind.draws


GUIDED = {"guidance_scale": 1.7}
MARKED = {"watermarking_config": SynthIDTextWatermarkingConfig(keys=[7, 8, 9], ngram_len=3)}
STATELESS = {"watermarking_config": WatermarkingConfig(bias=2.5, context_width=1)}


@pytest.mark.parametrize(
    ("options", "lossy"), [(GUIDED, True), (MARKED, True), (STATELESS, False), ({}, False)]
)
def test_greedy_text_that_drafts_change_is_called_lossy(options, lossy):
    """The model drafts for itself, so every draft token would be right."""
    model, ids = tiny_llama(2, 0), torch.tensor([PROMPT])
    more = {"max_new_tokens": 14, "pad_token_id": 0, "do_sample": False} | options
    plain = model.generate(ids, attention_mask=torch.ones_like(ids), **more)[0, len(PROMPT) :]
    trace = watch(model, model, PROMPT, **more)
    assert (trace.token_ids != plain.tolist()) == lossy == trace.started.settings["lossy"]


@pytest.mark.parametrize(("limit", "lossy"), [(4, False), (12, True), (40, False)])
def test_a_text_that_drafts_change_where_longrope_changes_is_called_lossy(limit, lossy):
    """The model drafts for itself, so every draft token would be right."""
    rope = {"short_factor": [1.0] * 8, "long_factor": [1.0 + 2 * index for index in range(8)]}
    rope |= {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": limit}
    sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}
    ends = dict.fromkeys(("eos_token_id", "bos_token_id")) | {"pad_token_id": 0}
    torch.manual_seed(1)
    config = Phi3Config(
        **sizes, **ends, original_max_position_embeddings=limit, rope_parameters=rope
    )
    config.initializer_range = 0.4
    model, ids = Phi3ForCausalLM(config).eval(), torch.tensor([PROMPT])
    more = {"max_new_tokens": 20, "do_sample": False}
    plain = model.generate(ids, attention_mask=torch.ones_like(ids), **more)[0, len(PROMPT) :]
    trace = watch(model, model, PROMPT, **more)
    assert (trace.token_ids != plain.tolist()) == lossy == trace.started.settings["lossy"]


def test_the_model_is_left_as_it_was(kind):
    depth, hooks = kind.model.config.get_text_config().num_hidden_layers, set(vars(kind.model))
    watch(kind.model, kind.assistant, PROMPT, **options_of(kind, "greedy"))
    assert kind.model.config.get_text_config().num_hidden_layers == depth
    assert set(vars(kind.model)) == hooks


def test_a_model_without_early_exit_ends_in_one_line_and_keeps_its_layers():
    sizes = {"vocab_size": 97, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)).eval()
    with pytest.raises(ValueError, match=r"^transformers .* cannot draft so with GPT2LMHead.*\)$"):
        watch(model, None, PROMPT, assistant_early_exit=1, max_new_tokens=4, pad_token_id=0)
    assert model.config.num_hidden_layers == 3


LLAMA = tiny_llama(3, 0)
REFUSED = {
    "no DFlash drafter": (LLAMA, LLAMA, {"speculation_type": "dflash"}, "LlamaForCausalLM is none"),
    "no drafter": (LLAMA, None, {"speculation_type": "dflash"}, "needs an assistant_model that is"),
    "DFlash without its option": (LLAMA, dflash(), {}, "give speculation_type='dflash'"),
    "another width": (
        LLAMA,
        dflash(hidden_size=16),
        {"speculation_type": "dflash"},
        "assistant_model has hidden_size 16, the model's is 32",
    ),
    "a layer too many": (
        LLAMA,
        dflash(target_layer_ids=[0, 3]),
        {"speculation_type": "dflash"},
        "assistant_model reads layer 3 of its target, this one has 3",
    ),
    "a mask that is no token": (
        LLAMA,
        dflash(mask_token_id=97),
        {"speculation_type": "dflash"},
        "assistant_model has mask_token_id 97, which the model does not have",
    ),
    "an unknown type": (LLAMA, None, {"speculation_type": "tree"}, "must be 'dflash', got 'tree'"),
    **{
        f"early exit {layers!r}": (
            LLAMA,
            None,
            {"assistant_early_exit": layers},
            f"assistant_early_exit must be a number of layers from 1 to 2, got {layers!r}",
        )
        for layers in (0, -1, 3, 1.5, "2")
    },
    "sampled drafts of another tokenizer": (
        LLAMA,
        LLAMA,
        {"do_sample": True, "tokenizer": byte_level(), "assistant_tokenizer": byte_level()},
        "assistant_tokenizer with do_sample=True is not supported",
    ),
    **{
        f"stop strings with {name}": (
            LLAMA,
            assistant,
            {"stop_strings": "a", "tokenizer": byte_level()} | options,
            "stop_strings: transformers .* does not take them where a model drafts",
        )
        for name, assistant, options in (
            ("a draft", LLAMA, {}),
            ("early exit", None, {"assistant_early_exit": 2}),
        )
    },
    "early exit in a configuration": (
        LLAMA,
        None,
        {"generation_config": GenerationConfig(assistant_early_exit=7), "max_new_tokens": None},
        "assistant_early_exit must be a number of layers from 1 to 2, got 7",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_transformers_cannot_run_ends_in_one_line(name):
    model, assistant, options, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as caught:
        watch(model, assistant, PROMPT, **{"max_new_tokens": 4, "pad_token_id": 0} | options)
    assert "\n" not in str(caught.value)


def test_an_assistant_of_gemma_4_needs_its_own_target(tmp_path):
    target, assistant = made("gemma 4")
    with pytest.raises(ValueError, match=r"a target of Gemma 4 or 3n, not LlamaForCausalLM$"):
        watch(LLAMA, assistant, PROMPT, max_new_tokens=4)
    assistant.config.backbone_hidden_size = 20
    with pytest.raises(ValueError, match="backbone_hidden_size 20, the model's hidden_size is 16"):
        watch(target, assistant, PROMPT, max_new_tokens=4)


@pytest.mark.parametrize(
    ("name", "message"), [("", "made in memory"), ("/no/such/folder", "which does not exist")]
)
def test_mtp_layers_of_a_model_without_files_end_in_one_line_and_fetch_nothing(name, message):
    model = tiny_llama(1, 0)
    model.config.num_mtp_layers, model.name_or_path = 1, name
    with pytest.raises(ValueError, match=f"^use_mtp=True: .*{message}"):
        watch(model, None, PROMPT, use_mtp=True, max_new_tokens=4)
