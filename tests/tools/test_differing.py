"""`differ` names the reason for which two real texts differ."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, differ, load_pair
from naive_speculate.__main__ import main
from naive_speculate.pair import BUNDLED_PAIR
from naive_speculate.tools.differ import Verdict
from naive_speculate.tools.differ.scores import fitted_temperatures
from tests.programs import refusal

TARGET = BUNDLED_PAIR / "draft"
PROMPTS = [
    "A fox and a crow",
    "Once upon a time",
    "The old king opened",
    "It was raining when",
    "My dear friend,",
]
TEMPLATE = (
    "{% for m in messages %}A tale about {{ m.content }}:\n\n{% endfor %}{% if"
    " add_generation_prompt %}Once{% endif %}"
)


@cache
def decoder(dtype: str) -> SpeculativeDecoder:
    return SpeculativeDecoder(load_pair(TARGET, dtype=dtype))


def written(dtype: str, prompt: str, **params: float) -> str:
    chosen = SamplingParams(max_tokens=48, ignore_eos=True, **({"temperature": 0.0} | params))
    return decoder(dtype).generate(prompt, chosen, num_draft_tokens=0).text


@pytest.fixture(scope="module")
def parted():
    """A prompt whose greedy text in bfloat16 is not that in float32, and both texts."""
    found = (
        (prompt, written("float32", prompt), written("bfloat16", prompt)) for prompt in PROMPTS
    )
    return next(texts for texts in found if texts[1] != texts[2])


@pytest.fixture
def files(tmp_path, parted):
    paths = [tmp_path / name for name in ("prompt.txt", "A.txt", "B.txt")]
    for path, text in zip(paths, parted, strict=True):
        path.write_text(text, encoding="utf-8")
    return ["differ", "--target", str(TARGET), "--prompt-file", *map(str, paths)]


def test_texts_that_part_in_bfloat16_are_a_near_tie_and_both_right(parted):
    prompt, a, b = parted
    found = differ(TARGET, prompt, a, b, greedy=True)
    assert found.verdict == Verdict.NEAR_TIE
    assert a.startswith(b[: len(b) - len(b.lstrip())])
    assert [(m.dtype, m.num_rows) for m in found.margins] == [
        ("float32", 1),
        ("float32", 6),
        ("bfloat16", 1),
        ("bfloat16", 6),
    ]
    assert found.token_a in found.margins[0].top
    assert found.margins[0].margin == pytest.approx(found.margins[1].margin, abs=1e-3)
    assert 0 < found.rounding < 1
    assert found.a.greedy == found.b.greedy == 1


def test_a_sampled_text_is_distinguished_from_a_greedy_one_with_the_temperatures_that_fit(parted):
    prompt, a, _ = parted
    found = differ(TARGET, prompt, a, written("float32", prompt, temperature=0.8, seed=3))
    assert found.verdict == Verdict.SAMPLING
    assert (found.a.temperature, found.a.greedy) == (0, 1)
    low, high = found.b.temperatures
    assert 0.3 < low < 0.8 < high < 1.5
    assert f"Text B fits temperatures from {low:g} to {high:g}" in found.explanation


@pytest.mark.parametrize("num_tokens", [5, 40])
def test_the_interval_of_temperatures_holds_the_true_one_however_short_the_text(num_tokens):
    """Its 95% are those of long texts."""
    random, widths, held = torch.Generator().manual_seed(1), [], 0
    for _ in range(200):
        logits = 3 * torch.randn(num_tokens, 97, generator=random)
        ids = torch.multinomial((logits / 0.8).softmax(-1), 1, generator=random)[:, 0]
        best, low, high = fitted_temperatures(logits, ids)
        held += low <= 0.8 <= high or best == 0  # a greedy text fits it too
        widths.append(high - low)
    assert held >= 180
    assert (max(widths) > 1) == (num_tokens == 5)


def test_what_rounding_cannot_explain_is_said_to_be_unexplained(parted, small_decoder):
    prompt, a, _ = parted
    assert (
        differ(TARGET, prompt, a, " 4711 §§ def main(): return None; HTTP/1.1 404 zzqx").verdict
        == Verdict.UNEXPLAINED
    )
    noisy = SpeculativeDecoder(
        ModelPair(small_decoder.pair.draft, tokenizer=small_decoder.pair.tokenizer)
    )
    other = noisy.generate(prompt, SamplingParams(max_tokens=40, temperature=0), num_draft_tokens=0)
    assert differ(TARGET, prompt, a, other.text, greedy=True).verdict == Verdict.UNEXPLAINED


def test_texts_are_compared_from_the_first_token_that_differs(parted):
    prompt, a, _ = parted
    found = differ(TARGET, prompt, a, a[: a.rindex(" ")])
    assert (found.verdict, found.token_b) == (Verdict.LENGTH, "(end of text)")
    found = differ(TARGET, "The dog", " ran", "s ran")  # one continues the last word
    assert (found.index, found.before, found.token_a, found.token_b) == (0, "The", " dog", " dogs")


def test_a_template_is_found_by_the_prompt_that_each_text_fits(tmp_path):
    for path in TARGET.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    a, b = written("float32", "a fox"), written("float32", "A tale about a fox:\n\nOnce")
    found = differ(tmp_path, "a fox", a, b)
    assert found.verdict == Verdict.TEMPLATE
    assert (found.a.prompt, found.b.prompt) == ("as plain text", "in the chat template")


def test_the_command_prints_margins_and_verdict_and_an_editor_s_mark_and_line_end_do_not_differ(
    files, tmp_path, capsys
):
    assert main(files) == 0
    said = capsys.readouterr().out
    assert ("Near tie. Both texts are right" in said, "bfloat16" in said) == (True, True)
    saved = tmp_path / "saved.txt"
    saved.write_bytes(b"\xef\xbb\xbf" + Path(files[-2]).read_bytes() + b"\r\n")
    for same in (files[-2], str(saved)):
        assert main([*files[:-1], same, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["verdict"] == "same"


def test_an_unknown_dtype_and_an_empty_prompt_are_refused_and_the_same_text_needs_no_model():
    for prompt, dtype, said in (
        ("Once", "int8", "dtype must be bfloat16 or float16, got 'int8'"),
        ("", "bfloat16", "prompt is empty"),
    ):
        with pytest.raises(ValueError, match=said):
            differ(TARGET, prompt, "a", "b", dtype=dtype)
    assert differ(Path("unread"), "Once", "a", "a").verdict == Verdict.SAME


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--prompt-file", "missing.txt"], "missing.txt: No such file"),
        (["--chat"], "chat is set, but the target has no chat template"),
        (["--num-draft-tokens", "0"], "must be a positive whole number"),
        (["--target", "nowhere"], "target='nowhere'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(files, change, said):
    assert said in refusal("naive_speculate.__main__", [*files, *change])
