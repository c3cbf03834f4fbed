"""GGUF pairs: what llama.cpp computes is decoded as any other model is. The contracts of
`test_contracts.py` hold, too."""

import json

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder, load_pair
from naive_speculate.infer.gguf.export import main as export_main
from naive_speculate.infer.gguf.library import llama_cpp
from naive_speculate.infer.gguf.model import GgufLanguageModel
from naive_speculate.infer.gguf.tokenizer import GgufTokenizer
from naive_speculate.models import BUNDLED_PAIR
from naive_speculate.testing.enumeration import enumerate_outputs, exact_outputs, largest_difference
from tests.infer.gguf.files import loaded, written
from tests.infer.llamas import FAMILIES, Rows, direct_logits, random_model
from tests.infer.test_contracts import build, tokens
from tests.programs import run_program
from tests.speculate.rows import same_alone, same_as_plain
from tests.tiny import noised
from tests.tokenizers_of_tests import ODD, byte_level, letters, llama, save

pytestmark = pytest.mark.gguf
PROMPTS = ["Once upon a time there was a little fox", "The old king", "naïve café — 日本語 🎉"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A target, and a draft that is the target with a little noise."""
    folder, tokenizer = tmp_path_factory.mktemp("pair"), byte_level()
    target = written(llama(tokenizer, 0, 2), folder / "target.gguf", tokenizer)
    return target, written(noised(llama(tokenizer, 0, 2), 0.03), folder / "draft.gguf", tokenizer)


@pytest.fixture(scope="module")
def decoder(files):
    return SpeculativeDecoder(load_pair(*files))


# Logits


@pytest.mark.parametrize(
    "family",
    [
        "llama",
        "llama tied",
        "llama all heads",
        "llama narrow heads",
        "qwen2",
        "qwen3",
        "qwen3 tied",
    ],
)
def test_rows_that_come_grow_and_are_cropped_and_copied_get_transformers_logits(family):
    source = random_model(FAMILIES[family]())
    rows = Rows(loaded(source), source, 4)
    torch.manual_seed(1)
    rows.forward(7, [1])
    rows.forward(4, [0, 2], crop=[1, 3])
    rows.forward(1, [2, 0, 1])
    rows.forward(5, [1, 2], crop=[5, 2], num_logits=3)
    rows.forward(
        530, [3], num_logits=1
    )  # more than one call of llama.cpp, and more than its first cache holds
    rows.forward(3, [0, 1, 2, 3], crop=[0, 1, 2, 3])
    rows.cache.clear_row(3)
    rows.held[3] = []
    rows.cache.trim()
    rows.forward(2, [3, 0])
    rows.cache.copy_row(0, 1)
    rows.held[1] = list(rows.held[0])
    rows.forward(3, [0, 1], crop=[2, 0])
    rows.cache.keep(1, 4)
    rows.held[1] = rows.held[1][:4]
    rows.cache.add_rows(2)
    rows.held += [[], []]
    rows.forward(6, [5, 1, 0])


def test_padding_is_not_computed_so_it_may_go_on_after_the_last_position(decoder):
    model, limit = decoder.pair.target, decoder.pair.target.max_positions
    ids = torch.randint(1, 400, (1, limit), generator=torch.Generator().manual_seed(0))
    cache = model.new_cache(2)
    model.forward(ids[:, : limit - 2], cache.rows([0]))
    query = torch.cat([torch.nn.functional.pad(ids[:, limit - 2 :], (0, 3)), ids[:, :5]])
    found = model.forward(query, cache, lengths=[2, 5])
    expected = direct_logits(llama(byte_level(), 0, 2), ids[0].tolist())
    torch.testing.assert_close(found[0, :2], expected[-2:], atol=1e-3, rtol=0)
    torch.testing.assert_close(found[1], expected[:5], atol=1e-3, rtol=0)
    assert not model.forward(query, cache, lengths=[0, 5])[0].any()
    assert cache.lengths == [limit, 10]
    with pytest.raises(ValueError, match=f"query_token_ids reaches .* can take {limit}"):
        model.forward(query[:1], cache.rows([0]))


def test_layers_with_a_sliding_window_are_rolled_back_by_more_than_the_window():
    source = build("gemma2", max_position_embeddings=2600)
    model, ids = loaded(source), tokens(1, 2500)  # more than a cache for windows alone would hold
    cache = model.new_cache(1)
    model.forward(ids, cache, num_logits=1)
    cache.keep(0, 100)
    again = tokens(1, 20, seed=1)
    found = model.forward(again, cache)[0]
    expected = direct_logits(source, [*ids[0, :100].tolist(), *again[0].tolist()])[-20:]
    torch.testing.assert_close(found, expected, atol=1e-2, rtol=0)


def test_half_precision_weights_give_nearly_the_same(tmp_path):
    source = llama(byte_level(), 0, 2)
    model = GgufLanguageModel(written(source, tmp_path / "half.gguf", byte_level(), "float16"))
    ids = [5, 9, 300, 17]
    found = model.forward(torch.tensor([ids]), model.new_cache(1))[0]
    assert (found - direct_logits(source, ids)).abs().max() < 0.05


@pytest.mark.parametrize("token", [-1, 420])
def test_tokens_outside_the_vocabulary_are_refused(decoder, token):
    model = decoder.pair.target
    with pytest.raises(ValueError, match="query_token_ids must be between 0 and 419"):
        model.forward(torch.tensor([[1, token]]), model.new_cache(1))


# Decoding


@pytest.mark.parametrize("window", [1, 4, "auto"])
def test_greedy_decoding_gives_the_same_tokens_with_and_without_drafts(decoder, window):
    params = SamplingParams(max_tokens=60, temperature=0, ignore_eos=True)
    for prompt in PROMPTS:
        assert (
            same_as_plain(
                decoder, prompt, params, num_draft_tokens=window
            ).metrics.num_accepted_draft_tokens
            > 0
        )


def test_greedy_decoding_gives_the_tokens_that_transformers_gives(decoder):
    source, tokenizer = llama(byte_level(), 0, 2), byte_level()
    ids = tokenizer(PROMPTS[0]).input_ids
    expected = source.generate(
        torch.tensor([ids]), max_new_tokens=40, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
    assert decoder.generate(PROMPTS[0], params).token_ids == expected[0, len(ids) :].tolist()


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_row_of_a_batch_gives_what_it_gives_alone(decoder, temperature):
    params = [
        SamplingParams(max_tokens=20 + 7 * seed, temperature=temperature, seed=seed)
        for seed in range(3)
    ]
    same_alone(decoder, PROMPTS, params, num_draft_tokens=3)


def test_several_outputs_share_the_prompts_cache(decoder):
    params = SamplingParams(max_tokens=12, n=3, seed=4)
    texts = [output.text for output in decoder.generate(PROMPTS[0], params).outputs]
    assert len(texts) == len(set(texts)) == 3


def test_the_output_distribution_is_the_targets():
    tokenizer = letters("a", "b", "c")
    target, draft = llama(tokenizer, 0), llama(tokenizer, 1)
    prompt, params = [1, 2], SamplingParams(max_tokens=3)
    pair = ModelPair(loaded(target), loaded(draft))
    found = enumerate_outputs(pair, prompt, params, num_draft_tokens=2, detail="probs")
    expected = exact_outputs(
        lambda tokens: direct_logits(target, [*prompt, *tokens])[-1].softmax(-1), 3
    )
    assert largest_difference(found, expected) < 1e-5


def test_a_gguf_draft_drafts_for_a_target_of_transformers(files, tmp_path):
    source, tokenizer = llama(byte_level(), 0, 2), byte_level()
    source.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    decoder = SpeculativeDecoder(load_pair(tmp_path, files[1], device="cpu"))
    assert decoder.pair.translation is None
    found = same_as_plain(decoder, PROMPTS[0], SamplingParams(max_tokens=30, temperature=0))
    assert found.metrics.num_accepted_draft_tokens > 0


def test_a_draft_with_other_tokens_is_translated(files, tmp_path):
    other = byte_level("code", 340)
    draft = written(llama(other, 3), tmp_path / "other.gguf", other)
    decoder = SpeculativeDecoder(load_pair(files[0], draft))
    assert decoder.pair.translation.counts["shared"] > 250
    same_as_plain(
        decoder, PROMPTS[0], SamplingParams(max_tokens=20, temperature=0, ignore_eos=True)
    )


def test_a_file_that_names_no_special_tokens_has_none(tmp_path):
    source = letters("a", "b", *"cdefghijklmnop")
    model = llama(source, 0)
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    path = written(model, tmp_path / "open.gguf", source)
    assert GgufTokenizer(path).eos_token_id is None
    assert GgufTokenizer(path).all_special_ids == [0]
    assert GgufLanguageModel(path).eos_token_ids == ()


# Tokenizers


def test_texts_become_the_tokens_that_the_exported_tokenizer_makes(files):
    ours, theirs = GgufTokenizer(files[0]), byte_level()
    assert ours.get_vocab() == theirs.get_vocab()
    assert (ours.eos_token_id, ours.bos_token_id) == (theirs.eos_token_id, theirs.bos_token_id)
    assert ours.all_special_ids == theirs.all_special_ids
    for text in [*ODD, "", "a<|end|>b"]:
        ids = theirs(text).input_ids
        assert ours(text).input_ids == ids
        assert ours.decode(ids) == theirs.decode(ids)


def test_the_bundled_pair_decodes_the_same_as_gguf(bundled_decoder, tmp_path):
    for name in ("target", "draft"):
        export_program(BUNDLED_PAIR / name, tmp_path / f"{name}.gguf")
    decoder = SpeculativeDecoder(load_pair(tmp_path / "target.gguf", tmp_path / "draft.gguf"))
    params = SamplingParams(max_tokens=40, temperature=0)
    found, expected = (
        each.generate(PROMPTS[0], params, drafter="model") for each in (decoder, bundled_decoder)
    )
    assert found.text == expected.text
    assert found.metrics.num_draft_tokens == expected.metrics.num_draft_tokens
    assert decoder.pair.names == {"target": "target.gguf", "draft": "draft.gguf"}


def export_program(folder, path):
    done = run_program(export_main.__module__, [str(folder), str(path)])
    assert done.returncode == 0, done.stderr


def test_a_chat_template_is_taken_over(tmp_path):
    tokenizer = byte_level()
    template = "{% for message in messages %}{{ message.content }}<|end|>{% endfor %}"
    source = letters("a", "b", "c")
    source.chat_template = template
    found = GgufTokenizer(written(llama(source, 0), tmp_path / "chat.gguf", source))
    messages = [{"role": "user", "content": "ab"}]
    assert tokenizer.chat_template is None
    assert found.apply_chat_template(messages, return_dict=False) == source.apply_chat_template(
        messages, return_dict=False
    )


def test_a_beginning_of_sequence_token_is_added_where_the_file_says_so(tmp_path):
    source = letters("a", "b")
    model = llama(source, 0)
    model.config.bos_token_id = 0
    path = written(model, tmp_path / "plain.gguf", source)
    assert GgufTokenizer(path)("ab").input_ids == [1, 2]
    from gguf import GGUFReader

    reader = GGUFReader(path, "r+")
    reader.fields["tokenizer.ggml.add_bos_token"].parts[-1][0] = True
    reader.data.flush()
    assert GgufTokenizer(path)("ab").input_ids == [0, 1, 2]
    assert GgufTokenizer(path)("ab", add_special_tokens=False).input_ids == [1, 2]


# What is refused


@pytest.mark.parametrize("role", ["target", "draft"])
def test_models_that_cannot_be_rolled_back_are_refused_with_the_reason(files, tmp_path, role):
    path = recurrent(tmp_path / "mamba.gguf")
    pair = {"target": files[0]} | {role: path}
    with pytest.raises(
        ValueError,
        match=rf"^{role}=.*the model \(mamba\) is recurrent: its state cannot be rolled back",
    ):
        load_pair(**pair)


def recurrent(path):
    """The beginning of a Mamba's file, as far as it is read before it is refused."""
    import gguf

    writer = gguf.GGUFWriter(str(path), "mamba")
    for key, value in (
        ("context_length", 64),
        ("embedding_length", 32),
        ("block_count", 1),
        ("feed_forward_length", 0),
    ):
        writer.add_uint32(f"mamba.{key}", value)
    writer.add_uint32("mamba.attention.head_count", 0)
    tokenizer = byte_level()
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(pieces)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(pieces))
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device_map": "auto"}, "device_map='auto' is not for GGUF files"),
        (
            {"dtype": "float64"},
            (
                "dtype must be 'auto' or one of float32, float16, bfloat16 for GGUF models, got"
                " 'float64'"
            ),
        ),
        (
            {"device": "cuda"},
            (
                "cannot be loaded: device='cuda' is not available: this llama.cpp was built for the"
                " CPU alone$"
            ),
        ),
        (
            {"device": "cuda:1"},
            (
                "device must be auto, cpu, cuda, metal, vulkan for GGUF models, without a number,"
                " got 'cuda:1'$"
            ),
        ),
        ({"device": "toaster"}, "device must be auto, .*, got 'toaster'$"),
    ],
)
def test_options_that_are_not_for_gguf_files_are_named(files, options, message):
    with pytest.raises(ValueError, match=message):
        load_pair(*files, **options)


def test_a_file_that_llama_cpp_refuses_is_refused_with_what_it_says(files, tmp_path):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(files[0].read_bytes()[:-4096])
    with pytest.raises(
        ValueError, match=r"^target='.*cut.gguf' cannot be loaded: .*(tensor|data|bounds).*$"
    ) as caught:
        load_pair(cut)
    assert "\n" not in str(caught.value)


def test_more_rows_than_llama_cpp_has_sequences_are_refused(decoder):
    with pytest.raises(ValueError, match=r"batch_size may be 256 in llama\.cpp, got 257"):
        decoder.pair.target.new_cache(257)


def test_the_hidden_states_that_llama_cpp_does_not_return_are_refused(decoder):
    model = decoder.pair.target
    with pytest.raises(ValueError, match=r"layers: llama\.cpp returns no hidden states"):
        model.forward(torch.tensor([[1]]), model.new_cache(1), layers=[1])


# Programs


def test_the_command_line_takes_gguf_files(files, decoder):
    models = ["--target", str(files[0]), "--draft", str(files[1])]
    done = run_program(
        "naive_speculate.__main__",
        ["generate", PROMPTS[0], *models, "--max-tokens", "12", "--seed", "1"],
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout
        == decoder.generate(PROMPTS[0], SamplingParams(max_tokens=12, seed=1)).text + "\n"
    )


def test_the_page_serves_gguf_files(files):
    from naive_speculate.serving import Request
    from ui.host.catalog import load_catalog, run_events
    from ui.host.configuration import read_configuration

    catalog = load_catalog(
        read_configuration({"NAIVE_SPECULATE_PAIRS": f"Mine = {files[0]} + {files[1]}"}, {})
    )
    engine = catalog.of("Mine").engine
    assert engine.about.models == {"target": "target.gguf", "draft": "draft.gguf"}
    assert [
        event.kind
        for event in run_events(engine, Request(PROMPTS[0], SamplingParams(max_tokens=3)))
    ][-1] == "finished"
    catalog.close()


def test_llama_cpp_prints_nothing(files, capfd):
    pair = load_pair(*files)
    SpeculativeDecoder(pair).generate(PROMPTS[0], SamplingParams(max_tokens=3))
    assert capfd.readouterr() == ("", "")
    assert llama_cpp() is llama_cpp()


@pytest.mark.parametrize("role", ["target", "draft"])
def test_with_a_gguf_file_the_other_model_is_on_the_cpu_where_llama_cpps_logits_are(
    files, tmp_path, monkeypatch, role
):
    folder = save(llama(byte_level(), 0), byte_level(), tmp_path / "plain")
    models = {"target": files[0], "draft": files[1]} | {role: folder}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    pair = load_pair(**models)
    assert getattr(pair, role).device.type == "cpu"
    with pytest.raises(
        ValueError, match=r"^device='cuda': a model paired with a GGUF file must be on the CPU$"
    ):
        load_pair(**models, device="cuda")
    if role == "draft":
        with pytest.raises(
            ValueError, match=r"^device_map='auto': a model paired with a GGUF file"
        ):
            load_pair(**models, device_map="auto")
