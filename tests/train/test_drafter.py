"""`python -m train drafter` on tiny targets of three families, from data to an exported drafter
that decodes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen3Config,
)

from naive_speculate import SamplingParams, SpeculativeDecoder, load_pair
from tests.tokenizers_of_tests import byte_level
from train.__main__ import main
from train.batches import read_part
from train.block import BlockModel
from train.data import Conversation, Source, chat_template, parts, write_part
from train.export import export_block, export_head
from train.head import HeadModel, shape_of
from train.model import DraftModel
from train.stream import ANSWERING, TURN, Stream, stream
from train.texts import TextData, Texts

SHAPE: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 1024, "bos_token_id": None,
    "pad_token_id": None, "eos_token_id": 0, "initializer_range": 0.2,
}  # fmt: skip
FAMILIES = {
    "llama": LlamaConfig,
    "qwen": Qwen3Config,
    "gemma": Gemma3TextConfig,
    "mistral": MistralConfig,
}
TEMPLATE = (
    "{% for m in messages %}[user]{{ m.content }}[/user]{% endfor %}{% if add_generation_prompt"
    " %}[answer]{% endif %}"
)


def target(family: str) -> PreTrainedModel:
    torch.manual_seed(1)
    windows = {"sliding_window": 16} if family in ("gemma", "mistral") else {}
    return AutoModelForCausalLM.from_config(
        FAMILIES[family](**SHAPE, vocab_size=len(byte_level()), **windows)
    )


def saved(family: str, folder: Path, template: str | None = TEMPLATE) -> Path:
    target(family).save_pretrained(folder)
    tokenizer = byte_level()
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    tokenizer.chat_template = None
    return folder


@pytest.fixture(autouse=True)
def short_report(monkeypatch):
    monkeypatch.setattr("train.report.NUM_PROMPTS", 1)
    monkeypatch.setattr("train.report.MAX_TOKENS", 8)


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A target, and a work folder whose data serves all drafters; the first test that trains
    collects it."""
    folder = tmp_path_factory.mktemp("llama")
    return saved("llama", folder / "target"), folder / "work"


def command(folder: Path, work: Path, out: Path, *more: str) -> list[str]:
    sizes = [
        "--answer-tokens",
        "6000",
        "--vocabulary",
        "300",
        "--batch-tokens",
        "1024",
        "--layers",
        "1",
        "2",
        "4",
    ]
    return [
        "drafter",
        "--target",
        str(folder),
        "--work",
        str(work),
        "--out",
        str(out),
        *sizes,
        *more,
    ]


def accepted(folder: Path, **drafter: Path) -> float:
    """Accepted draft tokens per step at temperature 1 over a few prompts; greedy texts must be
    those of plain decoding."""
    decoder = SpeculativeDecoder(load_pair(folder, **drafter))
    name = decoder.pair.default_drafter
    prompts = ["The little fox", "def f(x):", "The old king opened", "Who are you?"]
    greedy = SamplingParams(temperature=0, max_tokens=30)
    fast, plain = (
        decoder.generate(prompts, greedy, num_draft_tokens=k, drafter=name) for k in (3, 0)
    )
    assert [r.token_ids for r in fast] == [r.token_ids for r in plain]
    sampled = SamplingParams(temperature=1, max_tokens=100, seed=1, ignore_eos=True)
    found = decoder.generate(prompts, sampled, num_draft_tokens=3, drafter=name)
    return sum(r.metrics.num_accepted_draft_tokens for r in found) / sum(
        r.metrics.num_spec_steps for r in found
    )


def gained(folder: Path, work: Path, out: Path, *kind: str, trained: int = 250) -> float:
    """How many more draft tokens per step are accepted after so many updates."""
    found = []
    for name, updates in (("untrained", "1"), ("trained", str(trained))):
        (work / f"{kind[1]}.pt").unlink(missing_ok=True)
        assert main(command(folder, work, out / name, *kind, "--updates", updates)) == 0
        found.append(accepted(folder, **{"draft" if "model" in kind else "head": out / name}))
    return found[1] - found[0]


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_a_trained_head_drafts_better_than_an_untrained_one(family, tmp_path):
    assert (
        gained(saved(family, tmp_path / "target"), tmp_path / "work", tmp_path, "--kind", "head")
        > 0.1
    )


def test_so_it_does_for_a_llama_from_what_the_target_computes_and_it_has_the_public_layout(
    llama, tmp_path
):
    """Tokens that the target wrote greedily, their hidden states and distributions are those of
    a forward in transformers."""
    folder, work = llama
    assert gained(folder, work, tmp_path, "--kind", "head") > 0.1
    config = json.loads((tmp_path / "trained" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["draft_vocab_size"] == 300
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 4]
    tensors = load_file(tmp_path / "trained" / "model.safetensors")
    assert tensors["d2t"].shape == (300,)
    assert int(tensors["t2d"].sum()) == 300
    assert tensors["midlayer.self_attn.q_proj.weight"].shape[1] == 64
    assert tensors["fc.weight"].shape == (32, 96)
    model = AutoModelForCausalLM.from_pretrained(folder)
    for c in read_part(parts(work)[0])[:8]:
        with torch.no_grad():
            seen = model(c.tokens[None].long(), output_hidden_states=True)
        for index, layer in enumerate((1, 2)):
            assert torch.allclose(
                c.states[:, 32 * index : 32 * index + 32].float(),
                seen.hidden_states[layer][0],
                atol=2e-2,
            )
        log_probs = torch.log_softmax(seen.logits[0, c.answer_start - 1 :], -1)
        assert torch.allclose(
            c.top_log_probs.float(), log_probs.gather(-1, c.top_ids.long()), atol=2e-2
        )


@pytest.mark.parametrize("kind", ["block", "dspark"])
def test_a_trained_block_drafter_drafts_better_than_an_untrained_one(kind, llama, tmp_path):
    sizes = ("--depth", "2", "--steps", "3", "--rank", "16")
    assert gained(*llama, tmp_path, "--kind", kind, *sizes, trained=60) > 0.1
    config = json.loads((tmp_path / "trained" / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(tmp_path / "trained" / "model.safetensors")
    assert tensors["fc.weight"].shape == (32, 96)
    assert config["aux_hidden_state_layer_ids"] == [1, 2, 4]
    declared = (config["speculators_model_type"], config["block_size"])
    if kind == "block":
        assert declared == ("dflash", 4)
    else:
        assert declared == ("dspark", 3)
        assert tensors["markov_head.markov_w2.weight"].shape == (300, 16)


@pytest.mark.parametrize("kind", ["head", "block"])
def test_a_head_is_written_in_one_file_and_a_block_drafter_in_small_ones(
    kind, tmp_path, monkeypatch
):
    """Converters of heads read one file alone."""
    monkeypatch.setattr("train.export.MAX_SHARD_SIZE", "10KB")
    embeddings, known = torch.randn(50, 16), torch.arange(30)
    source = Source("target", 50, 16, [1, 2, 3], "digest")
    if kind == "head":
        shape = shape_of(LlamaConfig, 16, 50, 24, 1)
        export_head(HeadModel(shape, embeddings, 3, known, 2), source, tmp_path / "out")
    else:
        blocks = shape_of(Qwen3Config, 16, 50, 24, 2)
        export_block(BlockModel(blocks, embeddings, 3, known, 2, 4), source, tmp_path / "out")
    files = [path.name for path in (tmp_path / "out").glob("*.safetensors")]
    assert (files == ["model.safetensors"]) == (kind == "head")


def test_a_trained_draft_model_loads_in_transformers_and_drafts(llama, tmp_path):
    assert gained(*llama, tmp_path, "--kind", "model", "--width", "32", "--depth", "1") > 0.1
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "trained").config.vocab_size == len(
        byte_level()
    )


def streamed(folder: Path, work: Path, out: Path, *more: str) -> list[str]:
    return command(folder, work, out, "--stream", "16", "--kind", "head", *more)


@pytest.mark.parametrize("family", ["llama", "qwen", "mistral"])
def test_a_stream_of_conversations_is_what_the_target_writes(family, tmp_path, monkeypatch):
    """Rows begin conversations one after another in a ring of places; the greedy answers are
    those of transformers, and what is learned is the distribution there."""
    monkeypatch.setattr("train.stream.MAX_ANSWER", 12)
    monkeypatch.setattr("train.stream.MAX_TURN", 10)
    monkeypatch.setattr(Stream, "_temperatures", lambda self: torch.zeros(self.rows))
    pair = load_pair(saved(family, tmp_path / "target"), executor="torch", device="cpu")
    texts = stream(pair, chat_template(pair.tokenizer), [[70, 71, 72] * 20], 600, 5, 0)
    model, kinds = AutoModelForCausalLM.from_pretrained(tmp_path / "target"), set()
    for tokens, answers in map(texts.conversation, range(len(texts.lengths))):
        begin = int(answers.int().argmax())
        assert answers[begin:].all()
        found = model.generate(
            tokens[None, :begin].long(), do_sample=False, max_new_tokens=len(tokens) - begin
        )[0]
        assert found[: len(tokens)].tolist() == tokens.tolist()
        kinds.add(begin > 60)
    assert kinds == {True, False}  # about passages, and turns of its own
    assert len(texts.lengths) > 20
    data = TextData(texts, pair.target, [1])
    batch = next(data.training(512, 0))
    with torch.no_grad():
        seen = torch.softmax(model(batch.tokens).logits, -1)[batch.rows, batch.positions + 1]
    assert torch.allclose(batch.top_probs, seen.gather(-1, batch.top_ids), atol=1e-4)
    assert not {*map(tuple, data.prompts())} & {
        tuple(texts.prompt(n)) for n in data.for_training.tolist()
    }


def test_a_stream_draws_from_the_targets_distribution(llama):
    target: Any = load_pair(llama[0], executor="torch", device="cpu").target
    torch.manual_seed(0)
    rows = Stream(target._forward, [[5]], ANSWERING, [], [0], 4_000)
    logits, temperature = torch.tensor([2.0, 1.0, 0.0, -9.0]), rows.temperature
    assert [round(float((temperature == t).float().mean()), 1) for t in (0, 0.7, 1)] == [
        0.5,
        0.1,
        0.4,
    ]
    for doing, where, wanted in (
        (ANSWERING, temperature == 0, torch.tensor([1.0, 0, 0, 0])),
        (ANSWERING, temperature == 1, torch.softmax(logits, -1)),
        (TURN, temperature >= 0, torch.softmax(torch.tensor([2.0, 1.0, 0.0, -torch.inf]), -1)),
    ):
        chosen = rows._chosen(logits.expand(4_000, -1), torch.full((4_000,), doing))[where]
        assert torch.allclose(torch.bincount(chosen, minlength=4) / len(chosen), wanted, atol=0.05)


def test_a_head_learns_from_a_stream_of_conversations_which_is_written_once(
    llama, tmp_path, capsys
):
    folder, found, written, work = llama[0], [], set(), tmp_path / "work"
    for updates in ("1", "250"):
        assert main(streamed(folder, work, tmp_path / updates, "--updates", updates)) == 0
        (work / "head.pt").unlink()
        found.append(accepted(folder, head=tmp_path / updates))
        written.add((work / "texts.safetensors").stat().st_mtime_ns)
    assert found[1] > found[0] + 0.1
    assert len(written) == 1
    (work / "texts.safetensors").write_bytes(b"damaged")
    assert main(streamed(folder, work, tmp_path / "head")) == 2
    assert "texts.safetensors is damaged" in capsys.readouterr().err


def test_a_base_target_continues_passages_in_a_stream(tmp_path):
    folder, text = saved("llama", tmp_path / "target", template=None), tmp_path / "text.txt"
    text.write_text("The little fox lived in the forest with her mother. " * 200, encoding="utf-8")
    assert (
        main(
            streamed(
                folder, tmp_path / "work", tmp_path / "head", "--updates", "1", "--text", str(text)
            )
        )
        == 0
    )
    texts = Texts.load(tmp_path / "work" / "texts.safetensors")
    assert texts.answers.sum() >= 6000
    assert not texts.answers[:30].any()


def test_given_conversations_are_used_and_a_base_target_continues_text(tmp_path):
    folder, work = saved("llama", tmp_path / "target", template=None), tmp_path / "work"
    given, text = tmp_path / "given.jsonl", tmp_path / "text.txt"
    given.write_text(
        json.dumps({"prompt": [5, 6, 7], "answer": [8, 9, 10, 11]}) + "\n", encoding="utf-8"
    )
    text.write_text("The little fox lived in the forest with her mother. " * 200, encoding="utf-8")
    assert (
        main(
            command(
                folder,
                work,
                tmp_path / "head",
                "--updates",
                "1",
                "--given",
                str(given),
                "--text",
                str(text),
            )
        )
        == 0
    )
    first, *rest = [c for path in parts(work) for c in read_part(path)]
    assert first.tokens.tolist() == [5, 6, 7, 8, 9, 10, 11]
    assert first.answer_start == 3
    assert len(rest) >= 32


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (["--layers", "1", "9"], "--layers 1 9: the target has 4 layers"),
        (["--given", "missing.jsonl"], "missing.jsonl"),
        (["--kind", "tree"], "invalid choice: 'tree'"),
        (
            ["--stream", "4", "--given", "some.jsonl"],
            "argument --given: not allowed with argument --stream",
        ),
        (["--answer-tokens", "0"], "must be a positive whole number"),
        (
            ["--out", "."],
            "--out .: the drafter would replace this folder and all in it; give a new one",
        ),
        (["--stream", "16"], "model_type is gemma3_text, not one of llama"),
    ],
)
def test_bad_input_is_one_line(change, line, tmp_path, capsys):
    folder = saved("gemma" if change == ["--stream", "16"] else "llama", tmp_path / "target")
    try:
        status = main(command(folder, tmp_path / "work", tmp_path / "out", *change))
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    assert status == 2
    said = capsys.readouterr().err.strip().splitlines()[-1:]
    assert said
    assert line in said[0]


@pytest.mark.parametrize(
    ("file", "content", "line"),
    [
        (
            "part-00000.safetensors",
            b"\0" * 40,
            "part-00000.safetensors is damaged, or was not copied in full",
        ),
        ("data.json", b"[1]", "data.json is damaged"),
        ("given.xz", b"no archive", "given.xz holds no text in UTF-8"),
        (
            "given",
            b'{"prompt": [5, 6], "answer": [1e999, 2]}',
            "line 1 has no token ids in prompt and answer",
        ),
    ],
)
def test_a_damaged_file_is_one_line(file, content, line, llama, tmp_path, capsys):
    (tmp_path / file).write_bytes(content)
    more = ["--given", str(tmp_path / file)] if file.startswith("given") else []
    assert main(command(llama[0], tmp_path, tmp_path / "out", *more)) == 2
    assert line in capsys.readouterr().err.strip().splitlines()[-1]


def test_where_a_part_was_removed_no_other_one_is_replaced(tmp_path):
    for limit in (2, 3, 4, 5, 6):
        row = Conversation(list(range(limit)), 1, limit, 0.0)
        row.states, row.likeliest = (
            [torch.zeros(4)] * limit,
            [(torch.zeros(1), torch.zeros(1))] * limit,
        )
        write_part(tmp_path, [row])
        if limit == 3:
            parts(tmp_path)[0].unlink()
    assert sorted(int(load_file(path)["lengths"]) for path in parts(tmp_path)) == [3, 4, 5, 6]


def test_the_tokens_that_a_draft_model_weighs_stand_for_all_others(monkeypatch):
    model, hidden = (
        DraftModel(torch.randn(300, 16), torch.arange(0, 300, 10), 32, 1, (), None),
        0.1 * torch.randn(4, 32),
    )
    whole = model.llama.lm_head(hidden).logsumexp(-1)
    monkeypatch.setattr("train.model.WEIGHED", 60)
    with torch.no_grad():  # to measure, all count
        torch.testing.assert_close(model.logits(hidden).logsumexp(-1), whole)
    drawn = torch.stack([model.logits(hidden).detach() for _ in range(400)])
    assert drawn.shape[-1] == 30 + 60
    torch.testing.assert_close(drawn.exp().sum(-1).mean(0).log(), whole, atol=0.02, rtol=0)
    torch.testing.assert_close(drawn[0, :, :30], model.llama.lm_head(hidden)[:, ::10])


def test_a_draft_model_may_be_wider_than_its_target_and_has_heads_of_an_even_width():
    model = DraftModel(torch.randn(50, 16), torch.arange(9), 32, 1, (), None)
    assert model.llama.model.embed_tokens.weight.shape == (50, 32)
    with pytest.raises(ValueError, match=r"^--width 7: it must be a multiple of 2"):
        DraftModel(torch.randn(50, 16), torch.arange(9), 7, 1, (), None)


def test_nothing_but_a_model_s_files_is_replaced(llama, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    other = tmp_path / "other"
    shutil.copytree(llama[0], other)
    (other / "thesis.txt").write_text("mine", encoding="utf-8")
    for out in (tmp_path, llama[0], other):
        assert main(command(llama[0], tmp_path / "work", out)) == 2
        assert f"--out {out}: the drafter would replace this folder" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").exists()
    assert (other / "thesis.txt").exists()
    assert (llama[0] / "config.json").exists()


def test_data_of_another_tokenizer_is_refused_in_one_line(tmp_path, capsys):
    folder, work = saved("llama", tmp_path / "target"), tmp_path / "work"
    assert main(command(folder, work, tmp_path / "head", "--updates", "1")) == 0
    told = json.loads((work / "data.json").read_text(encoding="utf-8")) | {"tokenizer": "another"}
    (work / "data.json").write_text(json.dumps(told), encoding="utf-8")
    assert main(command(folder, work, tmp_path / "head", "--updates", "1")) == 2
    assert "its data has tokenizer another" in capsys.readouterr().err
