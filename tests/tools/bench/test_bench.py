"""`bench` over prompts, and the timing of forwards: what is printed and saved."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.tools.bench import measure
from naive_speculate.tools.bench.command import main
from naive_speculate.tools.bench.measure import memory_mib
from tests.heads import head_config, head_tensors, save_head
from tests.programs import refusal
from tests.tiny import save_model, tiny_llama

NO_GGUF = "transformers, with which this compares, does not compute GGUF files"


def test_json_is_all_that_is_printed_and_plots_and_costs_are_saved(tmp_path, capsys):
    """With a head, which has rows too; and who is faster is saved."""
    save_model(tiny_llama(6, seed=0), tmp_path / "target")
    save_model(tiny_llama(1, seed=1), tmp_path / "draft")
    save_head(tmp_path / "head", "eagle", head_config(), head_tensors(head_config()))
    prompts, costs = tmp_path / "prompts.txt", tmp_path / "costs.json"
    prompts.write_text("w1 w2 w3\n", encoding="utf-8")
    arguments = ["--quick", "--json", "--new-tokens", "4", "--max-draft-tokens", "2"]
    arguments += ["--device", "cpu"]
    for option in ("target", "draft", "head", "plots"):
        arguments += [f"--{option}", str(tmp_path / option)]
    assert main([*arguments, "--prompts", str(prompts), "--write-costs", str(costs)]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert report["head"] == "head"
    lines = report["decoding"]["greedy"]
    others = [
        f"{name.replace('_', ' ')}, k = 2"
        for name in DRAFTERS
        if name not in ("model", "block", "mtp", "assistant")
    ]
    assert [line["num_draft_tokens"] for line in lines if line["name"] not in others] == [
        0,
        1,
        2,
        "auto",
        0,
        1,
        2,
    ]
    assert [line["name"] for line in lines if line["name"] in others] == others  # a row a drafter
    assert all(line["predicted"] is None for line in lines if line["name"] in others)
    assert all(line["tokens_per_second"] > 0 for line in lines)
    assert all(line["same_as_plain"] == 1.0 for line in lines)  # transformers' tokens too
    saved = json.loads(costs.read_text(encoding="utf-8"))
    assert set(saved) == {"draft", "verify", "head", "fastest_drafter"}
    assert set(saved["head"]) == {"draft", "verify"}
    rows = {line["name"]: line["over_plain"] for line in lines}
    speeds = {
        "model": rows["k = 2"],
        "head": rows["head, k = 2"],
        "suffix+head": rows["suffix+head, k = 2"],
    }
    assert saved["fastest_drafter"] == max(speeds, key=speeds.__getitem__)
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["speedup.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "./no-such-folder", "--draft", "./no-such-folder"], "no such folder"),
        (["--device", "abacus"], "abacus"),
        (["--new-tokens", "many"], "many"),
        (["--prompts", "no-such-file.txt"], "no-such-file.txt"),
        (["--write-costs", "no/such/costs.json"], "costs.json"),
        (["--plots", "/dev/null/plots"], "/dev/null/plots"),
        (["--target", "x.gguf", "--draft", "./draft"], f"--target x.gguf: {NO_GGUF}"),
        (["--target", "./target", "--draft", "x.gguf"], f"--draft x.gguf: {NO_GGUF}"),
        (["--drafters", "suffix"], "--drafters needs --suite"),
        (["--suite", "x", "--quick"], "--quick does not go with --suite"),
        (["--suite", "x", "--new-tokens", "5"], "--new-tokens does not go with --suite"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments, message):
    assert message in refusal("naive_speculate.__main__", ["bench", *arguments])


def test_a_failed_benchmark_leaves_no_file_and_plots_without_matplotlib_are_refused_first(
    monkeypatch, tmp_path
):
    with pytest.raises(ValueError, match="no such folder"):
        main(["--target", "./no-such-folder", "--write-costs", str(tmp_path / "costs.json")])
    monkeypatch.setattr("naive_speculate.tools.bench.command.is_installed", lambda *_: False)
    with pytest.raises(ValueError, match="--plots needs matplotlib: pip install"):
        main(["--target", "./no-such-folder", "--plots", str(tmp_path / "plots")])
    assert [*tmp_path.iterdir()] == []


def test_peak_memory_is_the_kernels():
    found = memory_mib(torch.device("cpu"))["process"]
    by_the_kernel = (
        int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
    )
    assert (
        0.9 * by_the_kernel < found < 100 * by_the_kernel
    )  # Linux counts what the process was before its program, too


def test_a_timed_forward_leaves_the_cache_as_it_was(tiny_pair):
    caches = []

    class Watched:
        device, vocab_size = tiny_pair.target.device, tiny_pair.target.vocab_size

        def new_cache(self, batch_size):
            caches.append(tiny_pair.target.new_cache(batch_size))
            return caches[-1]

        def forward(self, *args, **options):
            return tiny_pair.target.forward(*args, **options)

    run = measure.forward_timer(Watched(), 6, 2)
    assert run() > 0
    assert caches[0].lengths == [6]
