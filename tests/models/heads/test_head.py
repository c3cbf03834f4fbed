"""Draft heads in both layouts: what they compute, and what is said about those that do not fit."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from naive_speculate.infer import TransformersLanguageModel
from naive_speculate.models.heads.checkpoint import load_head
from naive_speculate.models.heads.files import is_head
from tests.heads import (
    LAYOUTS,
    TARGET_WIDTH,
    VOCAB,
    eager_fed_back,
    eager_fused,
    eager_layers,
    eager_logits,
    head_config,
    head_tensors,
    save_head,
)
from tests.tiny import tiny_llama

SLIDING = ["sliding_attention", "full_attention"]
KINDS = {
    "fewer tokens": ({}, {}, {}),
    "all tokens": ({}, {"known": None}, {}),
    "own embeddings": ({}, {"own_embeddings": True}, {}),
    "narrower": ({"hidden_size": 16, "head_dim": 8}, {}, {}),
    "wider": ({"hidden_size": 48, "num_key_value_heads": 4}, {"known": None}, {}),
    "norm before residual": ({}, {}, {"norm_before_residual": True}),
    "biases": ({}, {"biased": True}, {}),
    "three layers": ({"num_hidden_layers": 3}, {}, {}),
    "two layers, norm before residual": (
        {"num_hidden_layers": 2},
        {"known": None},
        {"norm_before_residual": True},
    ),
    "states normed": ({}, {"normed_input": True}, {}),
    "each layer's states normed": ({}, {"normed_layers": True}, {"fc_norm": True}),
    "normed, and normed output": (
        {},
        {"normed_layers": True, "known": None},
        {"eagle_config": {"fc_norm": True, "norm_output": True}},
    ),
    "normed output": ({"num_hidden_layers": 2}, {}, {"norm_output": True}),
    "a sliding layer": (
        {"num_hidden_layers": 2, "layer_types": SLIDING, "sliding_window": 5},
        {},
        {},
    ),
    "states added to embeddings": ({}, {"adds": True}, {}),
    "added, and two layers": (
        {"num_hidden_layers": 2, "hidden_size": 16, "head_dim": 8},
        {"known": None, "adds": True},
        {},
    ),
}


@pytest.fixture(scope="module")
def target():
    return TransformersLanguageModel(tiny_llama(6, seed=0))


def loaded(folder, target, executor="torch", dtype=None, in_8_bits=False):
    return load_head(folder, target, torch.device("cpu"), dtype, executor, in_8_bits)


@pytest.mark.parametrize(
    ("kind", "layout", "executor"),  # every two of them together
    [
        (kind, LAYOUTS[n % 2], ("torch", "onnx")[(n + m) % 2])
        for m, kind in enumerate(KINDS)
        for n in range(2)
    ],
)
def test_a_head_computes_what_its_definition_says(tmp_path, target, kind, layout, executor):
    """In pieces, through a cache, two rows of different lengths side by side, with rejected
    places in between."""
    changes, how, options = KINDS[kind]
    config = head_config(**changes)
    tensors = head_tensors(config, **how)
    head = loaded(save_head(tmp_path, layout, config, tensors, **options), target, executor)
    embedding = tensors.get("embed_tokens.weight", target.input_embeddings)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, VOCAB, (2, 40), generator=generator)
    features = torch.randn(2, 40, 3 * TARGET_WIDTH, generator=generator)
    states = eager_fused(tensors, config, features)
    expected = [
        eager_layers(tensors, config, embedding, row.tolist(), own, **options)
        for row, own in zip(tokens, states, strict=True)
    ]
    cache = head.new_cache(2)
    for number, lengths in enumerate(((7, 3), (1, 4), (5, 5), (1, 1), (9, 2), (2, 10))):
        begins = list(cache.lengths)
        width = max(lengths)
        query = torch.stack(
            [tokens[row, begin : begin + width] for row, begin in enumerate(begins)]
        )
        of_target = number % 2 == 0
        source = features if of_target else states
        before = torch.stack(
            [source[row, begin : begin + width] for row, begin in enumerate(begins)]
        )
        last = [length - 1 for length in lengths]
        logits, hidden = head.forward(query, before, cache.all_rows(), last, of_target=of_target)
        for row, (begin, length) in enumerate(zip(begins, lengths, strict=True)):
            wanted = expected[row][begin + length - 1]
            fed_back = eager_fed_back(tensors, config, wanted, **options)
            torch.testing.assert_close(hidden[row], fed_back, atol=2e-4, rtol=2e-4)
            torch.testing.assert_close(
                logits[row], eager_logits(tensors, config, wanted), atol=1e-3, rtol=1e-3
            )
            cache.keep(row, begin + length)
    assert head.vocab_size == VOCAB
    assert head.target_hidden_size == TARGET_WIDTH


@pytest.mark.parametrize(
    "kind", ["fewer tokens", "narrower", "biases", "a sliding layer", "added, and two layers"]
)
def test_a_head_in_8_bits_is_near_the_head(tmp_path, target, kind):
    changes, how, options = KINDS[kind]
    config = head_config(**changes)
    folder = save_head(tmp_path, "speculators", config, head_tensors(config, **how), **options)
    head, rounded = (loaded(folder, target, "onnx", in_8_bits=bits) for bits in (False, True))
    generator = torch.Generator().manual_seed(0)
    query = torch.randint(0, VOCAB, (30, 9), generator=generator)
    states = torch.randn(30, 9, config["hidden_size"], generator=generator)
    features = torch.randn(30, 9, 3 * TARGET_WIDTH, generator=generator)
    found = [
        [
            tensor
            for given in (states, features)
            for tensor in each.forward(
                query, given, each.new_cache(30).all_rows(), [8, 4] * 15, given is features
            )
        ]
        for each in (head, rounded)
    ]
    assert rounded.num_parameters == head.num_parameters
    for exact, near in zip(*found, strict=True):
        known = exact[0].isfinite()
        errors = (near - exact)[:, known].norm(dim=-1) / exact[:, known].norm(dim=-1)
        assert (
            0.005 < errors.median() < 0.06
        )  # a row may be further off: such small heads have small sums


IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture(scope="module")
def deep():
    return TransformersLanguageModel(tiny_llama(8, seed=0))


@pytest.mark.parametrize(
    ("layout", "more", "expected", "why"),
    [
        ("eagle", {}, (2, 4, 5), None),  # 2, n / 2, n - 3 of eight layers
        ("speculators", {}, (2, 4, 5), None),
        ("speculators", {IDS: [0, 2, 8]}, (0, 2, 8), "inputs: they are speculators'"),
        ("speculators", {IDS: [1, 3, 4]}, (1, 3, 4), "inputs: they are speculators'"),
        ("eagle", {IDS: [0, 2, 8]}, (0, 2, 8), "inputs: the target has 8 layers"),
        ("eagle", {IDS: [1, 3, 4]}, (2, 4, 5), "outputs: they are SpecForge's default"),
        ("eagle", {IDS: [2, 4, 6]}, (2, 4, 6), "inputs: they are at the top level"),
        (
            "eagle",
            {IDS: [2, 4, 6], "eagle_config": {IDS: [1, 3, 5]}},
            (2, 4, 6),
            "inputs: they are at the top level",
        ),
        (
            "eagle",
            {IDS: None, "eagle_config": {IDS: [1, 2, 5]}},
            (2, 3, 6),
            "outputs: the first is 1",
        ),
        (
            "eagle",
            {"eagle_config": {IDS: [1, 3, 4]}},
            (2, 4, 5),
            "outputs: they are SpecForge's default",
        ),
        ("eagle", {"eagle_config": {IDS: [2, 4, 5]}}, (2, 4, 5), "inputs: the first is 2"),
        ("eagle", {"eagle_config": {IDS: [3, 5, 7]}}, (3, 5, 7), "inputs: the first is 3"),
        ("eagle", {"eagle_config": {IDS: [1, 4, 8]}}, (1, 4, 8), "inputs: the target has 8 layers"),
    ],
)
def test_the_layers_are_those_that_the_configuration_means(
    tmp_path, deep, layout, more, expected, why, caplog
):
    with caplog.at_level("INFO", "naive_speculate"):
        head = loaded(
            save_head(tmp_path, layout, head_config(), head_tensors(head_config()), **more), deep
        )
    assert head.layers == expected
    logged = [record.getMessage() for record in caplog.records if IDS in record.getMessage()]
    assert [line.partition("are read as layer ")[2] for line in logged] == (
        [] if why is None else [why]
    )


@pytest.mark.parametrize("name", ["MedusaModel", "LlamaForCausalLMEagle", "PEagleDraftModel"])
def test_a_head_that_names_another_method_is_refused(tmp_path, deep, name):
    tensors = head_tensors(head_config())
    folder = save_head(tmp_path, "eagle", head_config(), tensors, architectures=[name])
    refused(folder, deep, f"it is '{name}', which is not supported: no EAGLE-3 head")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_head_of_specforge_with_normed_output_is_taken_at_its_word_with_a_warning(
    tmp_path, deep, layout, caplog
):
    config = head_config()
    loaded(save_head(tmp_path, layout, config, head_tensors(config), norm_output=True), deep)
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warned) == (layout == "eagle")
    assert all("compare with norm_output: false" in line for line in warned)


@pytest.mark.parametrize(
    ("declared", "architectures", "layout", "stored"),  # every two of them together
    [
        (declared, architectures, LAYOUTS[(i + j) % 2], (1, 3)[(j + (i > 0)) % 2])
        for i, declared in enumerate((1, 40, None))
        for j, architectures in enumerate((["LlamaForCausalLM"], ["LlamaForCausalLMEagle3"], None))
    ],
)
def test_the_tensors_say_what_a_head_is_and_how_deep(
    tmp_path, target, layout, declared, stored, architectures
):
    """The authors' heads of Llama 3.1 8B are called LlamaForCausalLM, and that of Vicuna 13B
    declares 40 layers."""
    config = head_config(num_hidden_layers=stored)
    folder = save_head(tmp_path, layout, config, head_tensors(config), architectures=architectures)
    told = json.loads((folder / "config.json").read_text())
    flat = told.get("transformer_layer_config", told)
    flat |= {"num_hidden_layers": declared, "model_type": "eagle3" if declared == 40 else "llama"}
    del told["draft_vocab_size"]
    (folder / "config.json").write_text(json.dumps(told))
    assert is_head(folder)
    head = loaded(folder, target)
    cache = head.new_cache(1)
    states, query = (
        torch.randn(1, 4, TARGET_WIDTH, generator=torch.Generator().manual_seed(0)),
        torch.tensor([[3, 5, 8, 2]]),
    )
    logits, _ = head.forward(query, states, cache.all_rows(), [3])
    expected = eager_layers(
        head_tensors(config), config, target.input_embeddings, query[0].tolist(), states[0]
    )[-1]
    torch.testing.assert_close(
        logits[0], eager_logits(head_tensors(config), config, expected), atol=1e-3, rtol=1e-3
    )


def test_a_head_with_the_embeddings_as_its_output_is_loaded(tmp_path, target):
    config = head_config(tie_word_embeddings=True)
    tensors = head_tensors(config, known=None)
    folder = save_head(tmp_path, "eagle", config, tensors)
    stored = load_file(folder / "model.safetensors")
    del stored["lm_head.weight"]
    save_file(stored, folder / "model.safetensors")
    states = torch.randn(1, 1, TARGET_WIDTH, generator=torch.Generator().manual_seed(0))
    logits, hidden = (head := loaded(folder, target)).forward(
        torch.tensor([[3]]), states, head.new_cache(1).all_rows(), [0]
    )
    tied = tensors | {"lm_head.weight": target.input_embeddings}
    torch.testing.assert_close(
        logits[0], eager_logits(tied, config, hidden[0]), atol=1e-3, rtol=1e-3
    )


def test_a_head_stored_in_shards_and_in_half_precision_is_loaded(tmp_path, target):
    config = head_config()
    tensors = head_tensors(config)
    save_head(
        tmp_path,
        "eagle",
        config,
        {k: t.half() if t.is_floating_point() else t for k, t in tensors.items()},
    )
    stored = load_file(tmp_path / "model.safetensors")
    names = sorted(stored)
    files = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: stored[name] for name in names if files[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    head = loaded(tmp_path, target, dtype=torch.float32)
    features = torch.randn(1, 3, 3 * TARGET_WIDTH)
    query, fused = (
        torch.zeros(1, 3, dtype=torch.int64),
        features @ tensors["fc.weight"].half().float().T,
    )
    found = [
        head.forward(query, states, head.new_cache(1).all_rows(), [2], states is features)
        for states in (features, fused)
    ]
    torch.testing.assert_close(*found)
    assert [loaded(tmp_path, target, executor).dtype for executor in ("torch", "onnx")] == [
        torch.float16,
        torch.float32,
    ]


MISFITS = [  # a tensor, what becomes of it, and the message
    ("fc.weight", lambda t: None, "fc.weight is missing"),
    ("fc.weight", lambda t: t[:, :-1], r"fc.weight is \[32, 95\], which does not fit 3 layers"),
    ("norm.weight", lambda t: t[:-1], r"norm.weight is \[31\], its configuration requires \[32\]"),
    ("layer.mlp.up_proj.weight", lambda t: t.T, r"layers.0.mlp.up_proj.weight is \[32, 40\]"),
    ("d2t", lambda t: t + 60, "d2t leads to token"),
    ("d2t", lambda t: t * 0, "t2d and d2t do not agree"),
    ("d2t", lambda t: t - torch.arange(60), "d2t leads to a token twice|d2t leads to token"),
    ("d2t", lambda t: t[:5], r"d2t is \[5\], lm_head.weight has 60 tokens"),
    ("d2t", lambda t: None, "d2t is missing"),
    ("extra.weight", torch.ones(2), "it holds extra.weight, which is not supported"),
    ("fc_norm.0.weight", torch.ones(32), "fc_norm has 1 weights of 32, which do not fit 3 layers"),
    ("fc_norm.1.weight", torch.ones(32), "fc_norm.0.weight is missing"),
    ("hidden_norm.weight", torch.ones(32), "it holds hidden_norm.weight, which is not supported"),
    ("state_proj.weight", torch.ones(32, 32), "hidden_norm.weight is missing"),
]
NORMS = {f"fc_norm.{index}.weight": torch.ones(31 + index) for index in range(3)}
WORDS = {
    "rope_parameters": {"rope_type": "default", "rope_theta": "ten"},
    "dtype": "float32",
    "eos_token_id": 0,
    "head_dim": 8,
}
NO_LAYERS = "eagle_aux_hidden_state_layer_ids must be a list of layer"
# changes of the configuration, more options, arguments of `head_tensors`, and the message
OTHER_KINDS = [
    ({}, {"fc_norm": True}, {}, "fc_norm.0.weight is missing"),
    ({"hidden_act": "gelu"}, {}, {}, "hidden_act is gelu, not silu"),
    (
        {},
        {"speculators_model_type": "dflash"},
        {},
        "hidden_norm.weight is missing",
    ),
    (
        {},
        {"norm_before_residual": True},
        {"adds": True},
        "norm_before_residual is not supported for a head",
    ),
    # words for numbers, where a mask is given, so that transformers' class does not make one
    (WORDS | {"tie_word_embeddings": False}, {}, {}, "."),
    ({}, {"ptd_token_id": 5}, {}, "its configuration has ptd_token_id = 5, which is not read"),
    (
        {},
        {"eagle_config": {"parallel_draft_step": 4}},
        {},
        "eagle_config.parallel_draft_step is 4, only 1 is supported",
    ),
    (
        {},
        {"eagle_config": {"use_aux_hidden_state": False}},
        {},
        "eagle_config.use_aux_hidden_state is False, only True is supported",
    ),
    ({"logit_scale": 0.5}, {}, {}, "its configuration has .*logit_scale = 0.5, which is not"),
    *(
        ({}, {"eagle_config": {IDS: ids}}, {}, NO_LAYERS)
        for ids in ("2, 4, 5", [2, "4", 5], [-1, 2, 3], [True, 2, 3])
    ),
]


def refused(folder, target, message):
    with pytest.raises(ValueError, match=rf"^head='.*' cannot be loaded: .*({message})") as caught:
        loaded(folder, target)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "more", "how", "spoil", "message"),
    [
        *(({}, {}, {}, {name: change}, message) for name, change, message in MISFITS),
        ({}, {}, {}, NORMS, r"fc_norm has weights of shapes \[31\], \[32\], \[33\]"),
        *((*kind[:3], {}, kind[3]) for kind in OTHER_KINDS),
    ],
)
def test_a_head_that_does_not_fit_together_or_of_another_kind_is_reported_in_one_line(
    tmp_path, target, changes, more, how, spoil, message
):
    tensors = head_tensors(head_config(), **how)
    tensors |= {
        name: change(tensors[name]) if callable(change) else change
        for name, change in spoil.items()
    }
    tensors = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    refused(
        save_head(tmp_path, "speculators", head_config(**changes), tensors, **more), target, message
    )


def test_a_head_without_embeddings_needs_a_target_with_some_of_its_width(tmp_path):
    folder = save_head(
        tmp_path, "eagle", head_config(), head_tensors(head_config()), **{IDS: [0, 1, 2]}
    )
    refused(folder, object(), "has no input_embeddings to share")


@pytest.mark.parametrize("in_8_bits", [False, True])
@pytest.mark.parametrize("kind", ["fewer tokens", "added, and two layers"])
def test_a_head_keeps_no_matrix_that_onnx_runtime_has_copied(tmp_path, target, kind, in_8_bits):
    changes, how, options = KINDS[kind]
    config = head_config(**changes)
    folder = save_head(tmp_path, "speculators", config, head_tensors(config, **how), **options)
    head = loaded(folder, target, "onnx", in_8_bits=in_8_bits)
    kept = (head._weights.fuse, head._weights.head, head._weights.layers[0].qkv)
    assert not any(matrix.numel() for matrix in kept)
    assert head.num_parameters > 10 * config["hidden_size"]


def test_states_of_another_width_are_refused(tmp_path, target):
    config = head_config()
    folder = save_head(tmp_path, "eagle", config, head_tensors(config))
    for executor in ("torch", "onnx"):
        head = loaded(folder, target, executor)
        with pytest.raises(
            ValueError, match=f"reads hidden states of width {3 * TARGET_WIDTH}, got 5"
        ):
            head.forward(
                torch.tensor([[3]]),
                torch.randn(1, 1, 5),
                head.new_cache(1).all_rows(),
                [0],
                of_target=True,
            )
