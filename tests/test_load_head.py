"""Heads in pairs: `load_pair` and the command line, the bundled target, and heads that do not fit."""

import json
import shutil

import pytest
import torch
from safetensors.torch import save_file

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair, models
from naive_speculate import pair as pairs
from naive_speculate.__main__ import main
from naive_speculate.costs import CostTable
from naive_speculate.models import BUNDLED_PAIR
from tests.heads import LAYOUTS, head_config, head_tensors, save_bundled_head, save_head
from tests.speculate.rows import same_as_plain
from tests.tiny import save_model, tiny_llama


@pytest.fixture(scope="module")
def bundled_head(tmp_path_factory):
    return save_bundled_head(tmp_path_factory.mktemp("bundled"))


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    save_model(tiny_llama(6, seed=0), folder / "target")
    save_model(tiny_llama(1, seed=1), folder / "draft")
    for layout in LAYOUTS:
        save_head(folder / layout, layout, head_config(), head_tensors(head_config()))
    return folder


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_draft_that_is_a_head_is_taken_as_one(pair_folder, layout):
    pair = load_pair(pair_folder / "target", pair_folder / layout, device="cpu")
    assert pair.draft is None
    assert pair.head is not None
    assert pair.head.layers == (2, 3, 3)
    assert pair.names == {"target": "target", "head": layout}
    assert pair.default_drafter == "head"
    both = load_pair(pair_folder / "target", pair_folder / "draft", pair_folder / layout, device="cpu")
    assert both.default_drafter == "model"  # nothing was measured
    assert both.names == {"target": "target", "draft": "draft", "head": layout}
    greedy = SamplingParams(max_tokens=12, temperature=0)
    decoder = SpeculativeDecoder(both)
    plain = decoder.generate("w3 w5 w8", greedy, num_draft_tokens=0)
    for drafter in ("model", "head"):
        assert decoder.generate("w3 w5 w8", greedy, drafter=drafter).token_ids == plain.token_ids
    with pytest.raises(ValueError, match=r"^draft='.*' is a draft head, and head='x' was given too$"):
        load_pair(pair_folder / "target", pair_folder / layout, "x")


def test_greedy_output_is_plain_decoding_s_on_the_bundled_target(bundled_head):
    """With a head that is narrower than its target, and has few of its tokens."""
    pair = load_pair(head=bundled_head, device="cpu")
    assert pair.default_drafter == "model"  # nothing was measured of this head
    assert pair.costs("head").verify == pair.costs("model").verify
    same_as_plain(SpeculativeDecoder(pair), "A", SamplingParams(max_tokens=6, temperature=0), drafter="head")


def test_a_head_that_ships_with_the_bundled_target_is_in_the_pair(bundled_head, monkeypatch, tmp_path):
    for name in ("target", "draft"):
        (tmp_path / name).symlink_to(BUNDLED_PAIR / name)
    shutil.copytree(bundled_head, tmp_path / "head")
    monkeypatch.setattr(models, "BUNDLED_PAIR", tmp_path)
    monkeypatch.setattr(pairs, "BUNDLED_PAIR", tmp_path)
    pair = load_pair(device="cpu")
    assert pair.names == {"target": "bundled target", "draft": "bundled draft", "head": "bundled head"}
    assert pair.costs("head").draft < 0.2
    assert pair.costs("head").verify == pair.costs("model").verify


@pytest.mark.parametrize("fastest", ["head", "model"])
def test_of_model_and_head_the_one_drafts_that_was_measured_to_be_faster(bundled_head, monkeypatch, tmp_path, fastest):
    for name in ("target", "draft"):
        (tmp_path / name).symlink_to(BUNDLED_PAIR / name)
    (tmp_path / "head").symlink_to(bundled_head)
    measured = {"draft": 0.1, "verify": [1.0, 1.2], "head": {"draft": 0.04, "verify": [1.0, 1.3]}, "fastest_drafter": fastest}
    (tmp_path / "costs.json").write_text(json.dumps(measured), encoding="utf-8")
    monkeypatch.setattr(models, "BUNDLED_PAIR", tmp_path)
    pair = load_pair(device="cpu")
    assert pair.default_drafter == fastest
    assert pair.costs("head") == CostTable(0.04, (1.0, 1.3))
    assert pair.costs("model") == CostTable(0.1, (1.0, 1.2))


def test_a_head_for_another_target_is_named_in_one_line(pair_folder, bundled_head):
    with pytest.raises(ValueError, match=r"^head '.*' is for a target with hidden_size \d+, this one's is 32$"):
        load_pair(pair_folder / "target", head=bundled_head, device="cpu")
    with pytest.raises(
        ValueError,
        match=r"^head='.*' cannot be loaded: it is no EAGLE-3 head and none of `python -m train`: it has no fc.weight$",
    ):
        load_pair(pair_folder / "target", head=pair_folder / "draft", device="cpu")


def test_a_head_of_eagle_1_is_refused_as_such(tmp_path, pair_folder):
    tensors = {"fc.weight": torch.zeros(32, 64), "layers.0.self_attn.q_proj.weight": torch.zeros(32, 32)}
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **head_config()}))
    message = r"^head='.*' cannot be loaded: it is no EAGLE-3 head .*: it has no hidden_norm.weight$"
    with pytest.raises(ValueError, match=message):
        load_pair(pair_folder / "target", tmp_path, device="cpu")


def test_the_command_line_drafts_with_a_head(pair_folder, capsys):
    options = ["--target", str(pair_folder / "target"), "--head", str(pair_folder / "eagle"), "--device", "cpu"]
    more = ["--max-tokens", "6", "--temperature", "0", "--drafter", "head", "--json"]
    assert main(["generate", "w3 w5 w8", *options, *more]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[0]["settings"]["drafter"] == "head"
    assert events[0]["models"]["head"] == "eagle"
    assert any(event["kind"] == "proposed" for event in events)
    missing = ["--target", str(pair_folder / "target"), "--head", "/no/such"]
    assert main(["generate", "w3", *missing]) == 2
    assert "head='/no/such': there is no such folder" in capsys.readouterr().err


def test_half_precision_is_the_target_s(pair_folder):
    pair = load_pair(pair_folder / "target", head=pair_folder / "speculators", device="cpu", dtype="bfloat16")
    assert pair.head is not None
    assert pair.head.dtype == torch.bfloat16
    params = SamplingParams(max_tokens=8, seed=1)
    assert len(SpeculativeDecoder(pair).generate("w1 w2", params, drafter="head").token_ids) == 8
