"""The MTP layers in a checkpoint draft: each layout against an eager computation, losslessly,
and broken ones in one line."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from naive_speculate import EventKind, ModelPair, SamplingParams, SpeculativeDecoder, watch
from naive_speculate.models import wrap
from naive_speculate.models.foreign.mtp import mtp_tensors
from naive_speculate.testing import prove_lossless
from tests.heads import rms
from tests.speculate.rows import same_alone, same_as_plain, windows
from tests.tiny import shape, tiny_llama

SIZES = shape(
    vocab_size=24,
    hidden_size=16,
    intermediate_size=24,
    num_attention_heads=2,
    max_position_embeddings=64,
)
SIZES |= {
    "head_dim": 8,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.4,
}
del SIZES["num_hidden_layers"]
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 8}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
LINEAR |= {"layer_types": ["linear_attention", "full_attention"]}
ROUTED = {
    **MOE,
    "n_routed_experts": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
LATENT = {
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
DEEPSEEK = {
    "": "",
    "eh_proj": "eh_proj",
    "enorm": "enorm",
    "hnorm": "hnorm",
    "norm": "shared_head.norm",
}
QWEN = {
    "": "layers.0.",
    "eh_proj": "fc",
    "enorm": "pre_fc_norm_embedding",
    "hnorm": "pre_fc_norm_hidden",
    "norm": "norm",
}
MIMO = {"": "", "eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "norm": "final_layernorm"}
KINDS = ["full_attention", "sliding_attention"]
ROPE = {
    kind: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    for kind in KINDS
}
WINDOW = {"n_routed_experts": 2, "sliding_window": 4}
SWA = {
    "layer_types": KINDS,
    "mlp_layer_types": ["sparse", "dense"],
    "v_head_dim": 8,
    "rope_parameters": ROPE,
}
LAYOUTS = {
    "deepseek": ("deepseek_v3", {"head_dim": None} | ROUTED | LATENT, "model.layers.2.", DEEPSEEK),
    "glm": ("glm4_moe", ROUTED, "model.layers.2.", DEEPSEEK),
    "qwen3-next": (
        "qwen3_next",
        MOE | LINEAR | {"num_experts": 2, "shared_expert_intermediate_size": 8},
        "mtp.",
        QWEN,
    ),
    "qwen3.5": ("qwen3_5_text", LINEAR, "mtp.", QWEN),
    "mimo": (
        "mimo_v2_flash",
        MOE | SWA | {"num_key_value_heads": 1} | WINDOW,
        "model.mtp.layers.0.",
        MIMO,
    ),
    "glm, 2 layers": (
        "glm4_moe",
        ROUTED | {"num_nextn_predict_layers": 2},
        "model.layers.2.",
        DEEPSEEK,
    ),
    "deepseek, 3 layers": (
        "deepseek_v3",
        {"head_dim": None} | ROUTED | LATENT | {"num_nextn_predict_layers": 3},
        "model.layers.2.",
        DEEPSEEK,
    ),
    "mimo, 3 layers": (
        "mimo_v2_flash",
        MOE | SWA | {"num_key_value_heads": 1} | WINDOW,
        "model.mtp.layers.0.",
        MIMO,
    ),
    "mellum": (
        "mellum",
        MOE | {"num_experts": 2, "num_mtp_layers": 1} | {"mtp_layer_types": KINDS[:1]},
        "mtp.",
        QWEN,
    ),
}


def depth(layout: str) -> int:
    return int(layout.split(", ")[1][0]) if ", " in layout else 1


def build(
    layout: str, folder: Path, **more
) -> tuple[Path, list[nn.Module], list[dict[str, torch.Tensor]]]:
    """A checkpoint with MTP layers: its folder, and for each a model whose last layer is that
    layer, and the other tensors of it."""
    kind, changes, prefix, names = LAYOUTS[layout]
    torch.manual_seed(3)
    config = SIZES | changes | {"num_hidden_layers": 2} | more
    model, *donors = (
        AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**config))
        for _ in range(1 + depth(layout))
    )
    with torch.no_grad():
        for norm in (
            each
            for one in (model, *donors)
            for each in one.modules()
            if "RMSNorm" in type(each).__name__
        ):
            norm.weight.add_(0.3 * torch.randn_like(norm.weight))
    model.save_pretrained(folder / "own")
    width, extras = model.config.hidden_size, []
    tensors = load_file(folder / "own" / "model.safetensors")
    for number, donor in enumerate(donors):
        donor.eval().save_pretrained(folder / "donor")
        at = re.sub(r"\d+", lambda found, number=number: str(int(found[0]) + number), prefix)
        extra = {name: torch.randn(width) for name in ("enorm", "hnorm", "norm")} | {
            "eh_proj": torch.randn(width, 2 * width) / 4
        }
        for name, tensor in load_file(folder / "donor" / "model.safetensors").items():
            if name.startswith("model.layers.1."):
                own = name.removeprefix("model.layers.1.")
                if layout.startswith("mimo"):
                    own = own.replace("post_attention_layernorm", "pre_mlp_layernorm")
                tensors[at + names[""] + own] = tensor
        tensors |= {f"{at}{names[name]}.weight": tensor for name, tensor in extra.items()}
        extras.append(extra)
    save_file(tensors, folder / "own" / "model.safetensors", {"format": "pt"})
    return folder / "own", donors, extras


def load(folder: Path, dtype: torch.dtype = torch.float32) -> ModelPair:
    return ModelPair(
        wrap(
            AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, experts_implementation="eager"
            )
        )
    )


@torch.no_grad()
def eager(pair, donors, extras, layout: str, tokens: list[int], drafts: list[int]) -> torch.Tensor:
    """The distributions that a window's drafts are drawn from, after these tokens: the whole
    text, without a cache."""
    model, shift = pair.target.model, float(layout.startswith("qwen"))
    states, found = model.model(torch.tensor([tokens])).last_hidden_state[:, :-1], []
    for number in range(len(drafts)):
        layer = min(number, len(donors) - 1)
        donor, extra, config = donors[layer], extras[layer], donors[layer].config
        read = [*tokens, *drafts][1 + layer : 1 + layer + states.shape[1]]
        embedded = model.model.embed_tokens(torch.tensor([read]))
        normed = [
            rms(x, extra[name] + shift, config.rms_norm_eps)
            for x, name in ((embedded, "enorm"), (states, "hnorm"))
        ]
        x, count = torch.cat(normed, dim=-1) @ extra["eh_proj"].T, len(read)
        back = torch.arange(count)[:, None] - torch.arange(count)
        later = (back < 0) | (back >= (config.sliding_window if "mimo" in layout else count))
        positions = torch.arange(count)[None]
        kind = {"layer_type": "sliding_attention"} if "mimo" in layout else {}
        out = donor.model.layers[1](
            x,
            attention_mask=torch.zeros(count, count).masked_fill(
                later, torch.finfo(torch.float32).min
            )[None, None],
            position_embeddings=donor.model.rotary_emb(x, positions, **kind),
            position_ids=positions,
        )
        out = rms(out, extra["norm"] + shift, config.rms_norm_eps)
        found.append(model.lm_head(out[0, -1]).softmax(-1))
        # the last layer goes on from its own output
        states = out if number < len(donors) - 1 else torch.cat([states, out[:, -1:]], dim=1)
    return torch.stack(found)


@pytest.fixture(scope="module", params=[name for name in LAYOUTS if name != "mellum"])
def made(request, tmp_path_factory):
    folder, donors, extras = build(
        request.param, tmp_path_factory.mktemp(request.param.replace(".", ""))
    )
    return request.param, load(folder), donors, extras


def test_every_draft_is_drawn_as_an_eager_computation_says(made):
    layout, pair, donors, extras = made
    prompt, drafted = [3, 5, 7, 11, 2], 0
    params = SamplingParams(max_tokens=9, seed=5, ignore_eos=True)
    events = list(
        SpeculativeDecoder(pair).stream(prompt, params, drafter="mtp", num_draft_tokens=5)
    )
    assert pair.mtp.num_mtp_layers == depth(layout)
    assert events[0].head_layers == [2]
    for committed, window in windows(events, prompt):
        drafts = [event.token_id for event in window]
        expected = eager(pair, donors, extras, layout, committed, drafts)
        wanted = expected[torch.arange(len(drafts)), drafts].tolist()
        assert [event.draft_prob for event in window] == pytest.approx(wanted, abs=1e-4)
        drafted += len(drafts)
    assert drafted > 8


def test_greedy_output_is_that_of_plain_decoding(made):
    params = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
    same_as_plain(SpeculativeDecoder(made[1]), [1, 2, 3], params, drafter="mtp", num_draft_tokens=2)


@pytest.fixture(scope="module", params=["glm", "glm, 2 layers"])
def toy(request, tmp_path_factory):
    folder, _, _ = build(request.param, tmp_path_factory.mktemp("toy"), vocab_size=2)
    return load(folder, torch.float64)


@pytest.mark.parametrize(
    ("verifier", "params"),
    [
        ("speculative_sampling", {"max_tokens": 2}),
        ("block_verification", {"max_tokens": 3, "top_p": 0.7}),
    ],
)
def test_the_output_distribution_is_the_target_s(toy, verifier, params):
    params = SamplingParams(temperature=1.5, ignore_eos=True, **params)
    options = {"pair": toy, "prompt": [1, 0], "params": params, "num_draft_tokens": 2}
    # its norms compute in float32
    proof = prove_lossless(drafter="mtp", verifier=verifier, **options, tolerance=1e-7)
    assert proof.lossless, str(proof)


def test_a_batch_row_equals_the_row_alone(toy):
    params = [SamplingParams(max_tokens=8, seed=seed, ignore_eos=True) for seed in (1, 2)]
    same_alone(
        SpeculativeDecoder(toy), [[1, 1, 0, 1], [0, 1]], params, drafter="mtp", num_draft_tokens=3
    )


BROKEN = {
    "lacks": (
        lambda name, tensor: None if "hnorm" in name else tensor,
        r"files lack layers\.0\.hnorm\.weight",
    ),
    "misshapen": (lambda name, tensor: tensor[:, 1:] if "eh_proj" in name else tensor, r"eh_proj"),
    "quantised": (
        lambda name, tensor: tensor,
        r"quantised \(model\.layers\.2\.eh_proj\.weight_scale_inv\)",
    ),
    "none": (lambda name, tensor: None, r"the target's checkpoint has no MTP layer"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_checkpoint_is_answered_in_one_line(kind, tmp_path):
    change, message = BROKEN[kind]
    folder, _, _ = build("glm", tmp_path)
    path = folder / "model.safetensors"
    changed = {
        name: change(name, tensor) if name.startswith("model.layers.2.") else tensor
        for name, tensor in load_file(path).items()
    }
    if kind == "quantised":
        changed["model.layers.2.eh_proj.weight_scale_inv"] = torch.ones(1, 1)
    save_file(
        {name: t.contiguous() for name, t in changed.items() if t is not None},
        path,
        {"format": "pt"},
    )
    with pytest.raises(ValueError, match=rf"^drafter is 'mtp', but .*{message}") as caught:
        SpeculativeDecoder(load(folder)).generate(
            [1, 2], SamplingParams(max_tokens=2), drafter="mtp"
        )
    assert "\n" not in str(caught.value)


def drafted(events) -> dict[int, int]:
    """Draft tokens by position."""
    return {event.position: event.token_id for event in events if event.kind == EventKind.PROPOSED}


def test_transformers_own_mtp_is_watched_and_drafts_the_same_tokens(tmp_path):
    pair, prompt = (
        load(build("mellum", tmp_path, layer_types=["full_attention"] * 2)[0]),
        [3, 5, 7, 11],
    )
    model = pair.target.model
    for options in ({"do_sample": False}, {"do_sample": True, "top_k": 0}):
        trace = watch(model, None, prompt, use_mtp=True, max_new_tokens=10, **options)
        assert trace.started.settings["drafter"] == "mtp"
        assert len(trace.token_ids) == 10
        torch.manual_seed(0)
        expected = model.generate(
            torch.tensor([prompt]), use_mtp=True, max_new_tokens=10, **options
        )[0, 4:].tolist()
        assert trace.token_ids == expected
        if not options["do_sample"]:
            params = SamplingParams(max_tokens=10, temperature=0, ignore_eos=True)
            ours = drafted(
                SpeculativeDecoder(pair).stream(prompt, params, drafter="mtp", num_draft_tokens=1)
            )
            theirs = drafted(trace.events)
            shared = ours.keys() & theirs.keys()
            assert len(shared) > 2
            assert {p: ours[p] for p in shared} == {p: theirs[p] for p in shared}


@pytest.mark.parametrize("layout", ["glm, 2 layers", "deepseek, 3 layers"])
def test_several_layers_draft_what_transformers_own_generate_drafts(layout, tmp_path):
    """transformers 5.23, `generate(use_mtp=True)`: a draft token of each layer."""
    pair, prompt = load(build(layout, tmp_path)[0]), [3, 5, 7, 11]
    # its loader has the layers of the published sizes; these follow the tiny target's two
    numbers = "|".join(str(2 + index) for index in range(depth(layout)))
    pair.target.model._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.({numbers})\."]
    trace = watch(pair.target.model, None, prompt, use_mtp=True, max_new_tokens=16, do_sample=False)
    params = SamplingParams(max_tokens=16, temperature=0, ignore_eos=True)
    ours = SpeculativeDecoder(pair).stream(
        prompt, params, drafter="mtp", num_draft_tokens=depth(layout)
    )
    own, theirs = (
        {len(text): [event.token_id for event in window] for text, window in windows(each, prompt)}
        for each in (ours, trace.events)
    )
    shared = own.keys() & theirs.keys()
    assert len(shared) > 8
    for after in shared:  # near the end the lengths of the windows differ
        count = min(len(own[after]), len(theirs[after]))
        assert own[after][:count] == theirs[after][:count]


def test_a_model_without_mtp_layers_cannot_be_watched_so():
    with pytest.raises(ValueError, match=r"^use_mtp=True: .*MTP"):
        watch(tiny_llama(1, 0), None, [1, 2], use_mtp=True, max_new_tokens=2)


def test_only_the_shards_with_the_layer_are_read(tmp_path):
    folder, _, _ = build("glm", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {"a.safetensors": [], "b.safetensors": []}
    for name in tensors:
        parts["b.safetensors" if name.startswith("model.layers.2.") else "a.safetensors"].append(
            name
        )
    for file, names in parts.items():
        save_file({name: tensors[name] for name in names}, folder / file, {"format": "pt"})
    index = {
        "metadata": {},
        "weight_map": {name: file for file, names in parts.items() for name in names},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    pair = load(folder)
    (folder / "a.safetensors").unlink()
    assert {path.name for path in mtp_tensors(pair.target).values()} == {"b.safetensors"}
    assert pair.mtp.num_parameters > 0


def test_nothing_is_fetched_to_find_a_layer_and_plain_decoding_needs_none(monkeypatch):
    """A model made in memory has no files, whatever the Hub has under the name of its class."""
    asked = []
    monkeypatch.setattr(
        "naive_speculate.models.files.cached_file",
        lambda *given, **options: asked.append((given, options)),
    )
    pair = ModelPair(wrap(tiny_llama(1, 0), executor="transformers"))
    result = SpeculativeDecoder(pair).generate(
        [1, 2], SamplingParams(max_tokens=2), num_draft_tokens=0, drafter="mtp"
    )
    assert len(result.token_ids) == 2
    pair.target.model.name_or_path = "no-one/has-this"
    assert mtp_tensors(pair.target) == {}
    assert [options["local_files_only"] for _, options in asked] == [True] * len(asked) != []
