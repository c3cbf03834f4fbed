"""Where a text ends: the tokens at which transformers' `generate` ends, whichever file names
them and whatever executes."""

import json
from itertools import cycle
from pathlib import Path

import pytest
import torch
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.guides.guided import GuidedDecodingParams
from naive_speculate.infer import BasicInferencer
from naive_speculate.models import wrap
from tests.tiny import save_model, tiny_llama

PROMPT, LENGTH = [5, 17, 33], 12
GREEDY = SamplingParams(temperature=0, max_tokens=LENGTH)


def generated(model, **options):
    ids = torch.tensor([PROMPT])
    options = {"do_sample": False, "max_new_tokens": LENGTH, "pad_token_id": 0} | options
    return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[
        0, len(PROMPT) :
    ].tolist()


@pytest.fixture(scope="module")
def free():
    """What is generated where nothing ends it."""
    return generated(tiny_llama(2, seed=0))


def write(path: Path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# what config.json names, and what generation_config.json says: None for no such file; numbers are
# places in the text
CASES = {
    "only the configuration": (4, None),
    "a list in the configuration": ([4, 7], None),
    "only the generation configuration": (None, {"eos_token_id": 4}),
    "a list in the generation configuration": (7, {"eos_token_id": [4, 7]}),
    "the generation configuration decides": (2, {"eos_token_id": [6]}),
    "it names none": (4, {"eos_token_id": None}),
    "it lacks the key": (4, {"temperature": 0.5, "do_sample": True}),
    "it names an empty list": (4, {"eos_token_id": []}),
    "it is damaged": (4, "{"),
    "it names a token that there is not": (4, {"eos_token_id": -1}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("case", "executor"), zip(CASES, cycle(["auto", "torch", "transformers"]), strict=False)
)
def test_a_text_ends_where_generate_ends_it(tmp_path, free, case, executor):
    def token(place):
        return (
            [token(one) for one in place]
            if isinstance(place, list)
            else free[place]
            if (place or -1) > 0
            else place
        )

    of_config, of_generation = CASES[case]
    save_model(tiny_llama(2, seed=0), tmp_path)
    write(tmp_path / "config.json", eos_token_id=token(of_config))
    path = tmp_path / "generation_config.json"
    path.unlink(missing_ok=True)
    if isinstance(of_generation, dict):
        path.write_text(
            json.dumps(
                {k: token(v) if k == "eos_token_id" else v for k, v in of_generation.items()}
            )
        )
    elif of_generation is not None:
        path.write_text(of_generation)
    expected = generated(AutoModelForCausalLM.from_pretrained(tmp_path))
    found = SpeculativeDecoder(
        load_pair(tmp_path, tmp_path, device="cpu", executor=executor)
    ).generate(PROMPT, GREEDY)
    assert found.token_ids == expected
    assert found.finish_reason == ("stop" if len(expected) < LENGTH else "length")


@pytest.mark.parametrize("executor", ["torch", "transformers"])
def test_of_a_model_in_memory_its_generation_config_counts(free, executor):
    model = tiny_llama(2, seed=0)
    model.config.eos_token_id = free[2]
    model.generation_config.eos_token_id = [free[4]]
    found = SpeculativeDecoder(ModelPair(wrap(model, executor))).generate(PROMPT, GREEDY)
    assert found.token_ids == generated(model) == free[: free.index(free[4]) + 1]


def gemma3(**tokens):
    torch.manual_seed(0)
    text = dict(  # noqa: C408
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=128,
        sliding_window=16, initializer_range=0.3,
    )  # fmt: skip
    vision = dict(  # noqa: C408
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    images = {
        "mm_tokens_per_image": 1,
        "image_token_index": 96,
        "boi_token_index": 95,
        "eoi_token_index": 94,
    }
    return Gemma3ForConditionalGeneration(
        Gemma3Config(text_config=text, vision_config=vision, **images, **tokens)
    ).eval()


@pytest.fixture(scope="module")
def fourth_token():
    return generated(gemma3(), eos_token_id=[93])[3]


@pytest.mark.parametrize(
    ("inner", "in_generation_config"),
    [("absent", True), ("absent", False), (None, False), (90, True)],
)
def test_a_default_of_the_inner_configuration_does_not_hide_the_outer_one(
    tmp_path, fourth_token, inner, in_generation_config
):
    end = fourth_token
    model = gemma3(eos_token_id=[1, end])
    model.generation_config.eos_token_id = [1, end]
    save_model(tiny_llama(1, seed=0), tmp_path)  # for its tokenizer
    model.save_pretrained(tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    text.pop("eos_token_id", None)
    write(
        tmp_path / "config.json",
        text_config=text if inner == "absent" else text | {"eos_token_id": inner},
    )
    if not in_generation_config:
        (tmp_path / "generation_config.json").unlink()
    expected = generated(AutoModelForCausalLM.from_pretrained(tmp_path))
    pair = load_pair(tmp_path, device="cpu")
    assert pair.target.eos_token_ids == (1, end)
    assert SpeculativeDecoder(pair).generate(PROMPT, GREEDY).token_ids == expected


@pytest.fixture
def two_ends(tmp_path, free):
    """A folder as Llama 3 Instruct has it: the token that ends a turn stands in
    generation_config.json alone."""
    model = tiny_llama(2, seed=0)
    model.config.eos_token_id = never = next(token for token in range(1, 97) if token not in free)
    model.generation_config.eos_token_id = [never, free[4]]
    save_model(model, tmp_path)
    return load_pair(tmp_path, tmp_path, device="cpu"), never, free[4]


def test_all_that_ends_a_text_uses_the_same_tokens(two_ends, free):
    pair, never, end = two_ends
    decoder = SpeculativeDecoder(pair)

    def run(**options):
        return decoder.generate(
            PROMPT, SamplingParams(temperature=0, max_tokens=LENGTH, **options)
        ).token_ids

    assert run(ignore_eos=True) == free
    later = run(min_tokens=8)
    assert len(later) >= 8
    assert end not in later[:7]
    assert run(min_tokens=LENGTH, ignore_eos=True).count(end) == 0
    guided = decoder.generate(
        "w5",
        SamplingParams(
            temperature=0, max_tokens=LENGTH, guided_decoding=GuidedDecodingParams(regex="w2w3")
        ),
    )
    assert guided.token_ids[:2] == [2, 3]
    assert guided.token_ids[2] in (never, end)
    pair.tokenizer.chat_template = (
        "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    )
    pair.tokenizer.backend_tokenizer.pre_tokenizer = Whitespace()
    assert (
        decoder.generate("w5 w17 w33", GREEDY, chat=True).token_ids == free[: free.index(end) + 1]
    )


def test_a_draft_window_ends_at_the_tokens_of_its_own_model(two_ends, free):
    pair, _, end = two_ends
    inferencer = BasicInferencer(pair.draft)
    assert end in inferencer.eos_token_ids
    trace = list(SpeculativeDecoder(pair).stream(PROMPT, GREEDY, num_draft_tokens=16))
    proposed = [event.token_id for event in trace if event.kind == "proposed"]
    assert proposed == free[: free.index(end) + 1]


@pytest.mark.parametrize("executor", ["torch", "transformers"])
def test_end_tokens_that_are_none_are_refused_in_one_line(tmp_path, executor):
    save_model(tiny_llama(1, seed=0), tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": "</s>"}))
    with pytest.raises(
        ValueError, match=r"cannot be loaded: eos_token_id of .* must be token ids, got '</s>'$"
    ):
        load_pair(tmp_path, device="cpu", executor=executor)
