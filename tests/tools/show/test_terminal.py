"""What a run in the terminal says of its drafter."""

import io
import math

import torch
from rich.console import Console

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.events import Event, EventKind, Logprob
from naive_speculate.models import wrap
from naive_speculate.models.heads.checkpoint import load_head
from naive_speculate.speculate.draft import DRAFTERS
from naive_speculate.tools.show.terminal import TerminalView
from tests.heads import head_config, head_tensors, save_head
from tests.tiny import tiny_llama

REPEATING = "apples, pears, plums, apples, pears, plums, apples,"


def shown(events) -> str:
    out = io.StringIO()
    view = TerminalView(
        Console(
            file=out, force_terminal=True, color_system="truecolor", highlight=False, soft_wrap=True
        )
    )
    for event in events:
        view.show(event)
    return out.getvalue()


def test_where_kept_drafts_were_copied_from_is_underlined(small_decoder):
    again = small_decoder.admission.encode(
        REPEATING
    )  # so that there is something to copy, whatever the models would write
    params = SamplingParams(max_tokens=40, temperature=0, allowed_token_ids=sorted(set(again)))
    run = small_decoder.generate(REPEATING, params, drafter="suffix")
    drafted = {(e.step, e.index): e.copied_from for e in run.trace if e.kind == EventKind.PROPOSED}
    kept = {drafted[e.step, e.index] for e in run.trace if e.kind == EventKind.ACCEPTED}
    texts = [
        *run.trace.started.prompt_texts,
        *(e.text for e in run.trace if e.kind in ("accepted", "resampled", "bonus")),
    ]
    assert kept
    listing = shown(run.trace).split("copied tokens are underlined")[1]
    assert listing.count("\x1b[4m") == len(kept)
    for place in kept:
        assert f"\x1b[4m{texts[place]}\x1b[0m".replace("\n", "") in listing.replace("\n", "")
    copied_nothing = small_decoder.generate(
        REPEATING, SamplingParams(max_tokens=5, temperature=0), drafter="model"
    )
    assert "copied tokens" not in shown(copied_nothing.trace)


def test_the_layers_that_a_head_reads_are_reported_and_drawn(tmp_path):
    target = wrap(tiny_llama(6, seed=1))
    folder = save_head(tmp_path, "eagle", head_config(), head_tensors(head_config()))
    pair = ModelPair(target, head=load_head(folder, target, target.device, torch.float32))
    decoder = SpeculativeDecoder(pair)
    trace = decoder.generate(
        [1, 2, 3], SamplingParams(max_tokens=6, temperature=0), drafter="head"
    ).trace
    assert trace.started.head_layers == list(pair.head.layers)
    assert trace.started.target_layers == 6
    drawn = "".join("█" if layer in pair.head.layers else "░" for layer in range(7))
    assert drawn in shown(trace)
    plain = decoder.generate([1, 2, 3], SamplingParams(max_tokens=6), num_draft_tokens=0).trace
    assert plain.started.head_layers is None


def test_every_drafter_has_a_name_and_a_line():
    for name, drafter in DRAFTERS.items():
        assert drafter.title, name
        assert 20 < len(drafter.about) < 128, name


def test_tokens_that_the_draft_lacks_are_inverted_and_alternatives_come_with_the_others_sum():
    settings = {"drafter": "model", "num_draft_tokens": 3}
    vocabularies = {"shared": 30, "target": 90, "draft": 40}
    started = Event(
        EventKind.STARTED, schema_version=1, settings=settings, vocabularies=vocabularies
    )
    tokens = [
        Event(EventKind.BONUS, text=text, unknown_to_draft=unknown)
        for text, unknown in (("known", None), ("new", True))
    ]
    printed = shown([started, *tokens])
    assert "with 30 of the target's 90 tokens" in printed
    assert "\x1b[4;7;" in printed.split("known")[1].split("new")[0]
    assert "7;" not in printed.split("known")[0].rsplit("\x1b", 1)[1]

    own, other = Logprob(math.log(0.5), 1, "a"), Logprob(math.log(0.3), 2, "b")
    entries = [{1: own, 2: other}, {1: own}, {1: own, 2: Logprob(math.log(0.5), 2, "b")}]
    tokens = [Event(EventKind.BONUS, text="a", logprobs=entry) for entry in entries]
    printed = shown(
        [
            Event(EventKind.STARTED, schema_version=1, settings={}),
            *tokens,
            Event(EventKind.FINISHED),
        ]
    )
    assert printed.count("all others") == 1
    assert f"'b' -1.20  all others {math.log(0.2):.2f}" in printed
