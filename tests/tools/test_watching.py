"""`watch` runs transformers' own assisted generation, and records what that did."""

from pathlib import Path

import pytest
import torch
import transformers.generation.utils as theirs
from transformers import AutoTokenizer, GenerationConfig

from naive_speculate import EventKind, Trace, watch
from naive_speculate.events import OUTPUT_KINDS
from naive_speculate.events.metrics import summarize
from naive_speculate.events.steps import steps
from tests.tiny import save_model, tiny_llama
from tests.tokenizers_of_tests import byte_level
from ui.run.recorded import opened

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "docs/library.md"
PROMPT = [5, 17, 33, 5, 17, 33, 5, 17]
OPTIONS = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "temperature": 1.0, "top_k": 0},
    "warped": {
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.9,
        "repetition_penalty": 1.2,
    },
    "copied, greedy": {"do_sample": False, "prompt_lookup_num_tokens": 3},
    "copied, sampled": {"do_sample": True, "prompt_lookup_num_tokens": 3, "temperature": 0.8},
}


@pytest.fixture(scope="module")
def models():
    target, draft = tiny_llama(1, 0), tiny_llama(1, 0)
    with torch.no_grad():  # a draft that is often right, and often not
        for weight in draft.parameters():
            weight += 0.03 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    draft.generation_config.num_assistant_tokens = 4
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    return target, draft


def options_of(name: str, draft) -> dict:
    options = {"max_new_tokens": 16, "pad_token_id": 0} | OPTIONS[name]
    return options | ({} if "prompt_lookup_num_tokens" in options else {"assistant_model": draft})


def plainly(target, draft, name: str, seed: int) -> list[int]:
    torch.manual_seed(seed)
    ids = torch.tensor([PROMPT])
    return target.generate(ids, attention_mask=torch.ones_like(ids), **options_of(name, draft))[
        0, len(PROMPT) :
    ].tolist()


def steps_of(trace: Trace) -> list[tuple[list[int], int, list[int]]]:
    """Draft tokens, number of accepted ones, and output of each step with drafts."""
    return [
        (
            [draft.token_id for draft in step.drafts],
            step.end.num_accepted,
            [event.token_id for event in step.events if event.kind in OUTPUT_KINDS],
        )
        for step in steps(trace)
        if step.drafts
    ]


def watched(target, draft, name: str, seed: int, **more) -> Trace:
    options = options_of(name, draft) | more
    return watch(target, options.pop("assistant_model", None), PROMPT, seed=seed, **options)


@pytest.mark.parametrize("name", OPTIONS)
def test_tokens_and_verdicts_are_those_of_plain_generate(models, name, monkeypatch):
    said, decide = [], theirs._speculative_sampling

    def listening(*args, **kwargs):
        tokens, matches = decide(*args, **kwargs)
        said.append((args[0][0, -args[2] :].tolist(), int(matches), tokens[0].tolist()))
        return tokens, matches

    monkeypatch.setattr(theirs, "_speculative_sampling", listening)
    expected = plainly(*models, name, 3)
    monkeypatch.undo()
    trace = watched(*models, name, 3)
    assert trace.token_ids == expected
    assert trace.finished.finish_reason == "length"
    seen = steps_of(trace)
    if name in ("sampled", "warped"):  # the others are compared with the target's choices
        assert seen == said
        assert {kept for _, kept, _ in seen} > {0}


def test_probabilities_are_those_of_the_models_and_draws_decide(models):
    target, draft = models
    trace = watched(target, draft, "sampled", 1)
    history = torch.tensor([PROMPT + trace.token_ids])
    judged = [event for event in trace if event.kind in ("accepted", "rejected")]
    assert {event.kind for event in judged} == {"accepted", "rejected"}
    for event in judged:
        past = history[:, : len(PROMPT) + event.position]
        with torch.no_grad():
            p, q = ((model(past).logits[0, -1]).softmax(-1) for model in (target, draft))
        assert event.target_prob == pytest.approx(float(p[event.token_id]), rel=1e-3, abs=1e-6)
        assert event.draft_prob == pytest.approx(float(q[event.token_id]), rel=1e-3, abs=1e-6)
        assert event.accept_prob == pytest.approx(
            min(1.0, event.target_prob / event.draft_prob), rel=1e-5
        )
        assert (event.uniform <= event.accept_prob) == (event.kind == "accepted")
        assert event.target_top[0].prob == pytest.approx(float(p.max()), rel=1e-3)
        if event.kind == "rejected":
            left = (p - q).clamp_min(0)
            assert event.residual_top[0].prob == pytest.approx(
                float((left / left.sum()).max()), rel=1e-2
            )
    for event in watched(
        *models, "greedy", 0
    ):  # a greedy draft is accepted where it is the target's choice
        if event.kind in ("accepted", "rejected"):
            assert event.uniform is None
            assert (
                event.accept_prob
                == (event.target_top[0].token_id == event.token_id)
                == (event.kind == "accepted")
            )


def test_it_leaves_everything_as_it_was(models):
    target, draft = models
    state, hooks, attributes = torch.get_rng_state(), dict(target._forward_hooks), set(vars(target))
    watched(target, draft, "sampled", 1)
    with pytest.raises(ValueError, match="max_new_tokens"):
        watched(target, draft, "sampled", 1, max_new_tokens=-1)
    assert torch.equal(torch.get_rng_state(), state)
    assert (dict(target._forward_hooks), set(vars(target))) == (hooks, attributes)


def test_a_trace_is_saved_and_has_the_figures_of_its_events(models):
    trace = watched(*models, "sampled", 2)
    again = Trace.from_jsonl(trace.to_jsonl())
    assert again.to_jsonl() == trace.to_jsonl()
    assert summarize(again).to_dict() == trace.finished.metrics
    assert len(opened("run.jsonl", trace.to_jsonl()).events) == len(trace)
    assert trace.started.settings["engine"].startswith("transformers ")
    assert trace.started.settings["verify_strategy"] == "speculative_sampling"
    assert [event.time for event in trace] == sorted(event.time for event in trace)
    for event in trace:
        if event.kind == EventKind.STEP:
            assert 0 < event.draft_seconds + event.verify_seconds <= event.total_seconds


@pytest.mark.parametrize("name", ["greedy", "copied, greedy"])
def test_an_end_token_within_a_window_ends_the_run_there(models, name):
    tokens = plainly(*models, name, 0)
    for end in dict.fromkeys(tokens[:5]):
        trace = watched(*models, name, 0, eos_token_id=end)
        assert trace.token_ids == tokens[: tokens.index(end) + 1]
        assert trace.finished.finish_reason == "stop"


def test_a_generation_config_is_taken_as_generate_takes_it_and_texts_are_the_tokenizers(
    models, tmp_path
):
    target, draft = models
    config = GenerationConfig(
        do_sample=True, temperature=1.0, top_k=0, max_new_tokens=16, pad_token_id=0
    )
    trace = watch(target, draft, PROMPT, seed=4, generation_config=config)
    assert trace.token_ids == plainly(target, draft, "sampled", 4)
    assert trace.started.settings["temperature"] == 1.0
    save_model(target, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    trace = watch(
        target,
        draft,
        "w5 w17 w33",
        tokenizer=tokenizer,
        max_new_tokens=12,
        do_sample=False,
        pad_token_id=0,
    )
    assert trace.started.prompt == "w5 w17 w33"
    assert trace.text.strip() == tokenizer.decode(trace.token_ids)
    assert all(
        entry.text == f"w{entry.token_id}" for event in trace for entry in event.target_top or ()
    )
    options = {
        "tokenizer": byte_level(),
        "stop_strings": "w5",
        "logits_processor": [lambda ids, scores: scores],
    }
    options |= {"prompt_lookup_num_tokens": 3, "max_new_tokens": 4, "pad_token_id": 0}
    found = watch(target, None, PROMPT, **options).started.settings
    assert (found["stop"], found["include_stop_str_in_output"], found["logits_processors"]) == (
        ["w5"],
        True,
        1,
    )
    assert trace.started.settings["stop"] == []


def test_the_documented_lines_do_it(tmp_path, monkeypatch):
    (lines,) = (
        block
        for block in LIBRARY.read_text(encoding="utf-8").split("```")
        if "import watch" in block
    )
    (tmp_path / "assets").symlink_to(ROOT / "assets")
    monkeypatch.chdir(tmp_path)
    exec(lines.removeprefix("python\n"), {})
    trace = Trace.load(tmp_path / "transformers.jsonl")
    assert trace.text
    assert {"accepted", "proposed"} <= {event.kind for event in trace}


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ("once", {}, "needs a tokenizer"),
        (torch.zeros(2, 3, dtype=torch.long), {}, "one prompt"),
        ([], {}, "one prompt"),
        (None, {}, "inputs must be a text"),
        ([3, 9999], {}, "the token id 9999"),
        (PROMPT, {"assistant_model": None}, "nothing was drafted"),
        (
            PROMPT,
            {"assistant_model": None, "prompt_lookup_num_tokens": 2, "num_beams": 2},
            "with num_beams=1",
        ),
        (PROMPT, {"assistant_ensemble_weight": 0.5}, "assistant_ensemble_weight"),
    ],
)
def test_what_cannot_be_watched_is_refused(models, inputs, options, message):
    with pytest.raises(ValueError, match=message):
        watch(
            models[0],
            **{
                "assistant_model": models[1],
                "inputs": inputs,
                "max_new_tokens": 2,
                "pad_token_id": 0,
            }
            | options,
        )


OTHERS = {"typical_p": 0.9, "no_repeat_ngram_size": 3, "suppress_tokens": [7]}
SETTINGS = {
    "sampled": (
        {
            "do_sample": True,
            "temperature": 0.6,
            "top_p": 0.8,
            "min_p": 0.1,
            "min_new_tokens": 4,
            "eos_token_id": [3, 4],
            **OTHERS,
        },
        {
            "temperature": 0.6,
            "top_p": 0.8,
            "min_p": 0.1,
            "top_k": 50,
            "min_tokens": 4,
            "stop_token_ids": [3, 4],
        }
        | {"ignore_eos": False, "generation_config": OTHERS},
    ),
    "only the best token": ({"do_sample": True, "top_p": 0.0}, {"top_p": 0.0, "temperature": 1.0}),
    "no top_k": ({"do_sample": True, "top_k": None}, {"top_k": 0}),
    "greedy, which leaves options of sampling out": (
        {
            "do_sample": False,
            "repetition_penalty": 1.3,
            "typical_p": 0.9,
            "min_length": len(PROMPT) + 3,
            "eos_token_id": None,
        },
        {
            "temperature": 0.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.3,
            "min_tokens": 3,
            "stop_token_ids": [],
        }
        | {"ignore_eos": True, "generation_config": {}},
    ),
    "lengths with the prompt, and biases": (
        {
            "min_length": 2,
            "max_length": len(PROMPT) + 9,
            "max_new_tokens": None,
            "sequence_bias": [[[5], -1.5]],
        },
        {"min_tokens": 0, "max_tokens": 9, "generation_config": {"sequence_bias": [[[5], -1.5]]}},
    ),
}


def settings_of(models, **options) -> dict:
    target, draft = models
    return watch(
        target, draft, PROMPT, **{"max_new_tokens": 5, "pad_token_id": 0} | options
    ).started.settings


@pytest.mark.parametrize("name", SETTINGS)
def test_the_settings_are_those_that_transformers_used_given_or_of_the_models_own_generation_config(
    models, name, monkeypatch
):
    options, expected = SETTINGS[name]
    found = settings_of(models, **options)
    assert {setting: found[setting] for setting in expected} == expected
    lengths = {name: value for name, value in options.items() if name.startswith("max")}
    for option in options.keys() - lengths.keys():
        monkeypatch.setattr(models[0].generation_config, option, options[option])
    found = settings_of(models, **lengths)
    # there None means transformers' default
    known = {"top_k": 50} if name == "no top_k" else expected
    assert {setting: found[setting] for setting in known} == known
