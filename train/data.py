"""Stage 1: conversations that the target writes, and what it computed at each of their tokens.

A drafter learns best from the target's own text. An instruction-tuned target writes both sides
of a conversation: after its template's user header it continues with a user turn (Xu et al.
2024, arXiv 2406.08464, "Magpie"), and then it answers, half of the time greedily. What it answers
is always the whole prompt, rendered and tokenised as `chat=True` does: where the turn that it
wrote has other tokens there, it reads the prompt again. A base target continues passages of
given text. The hidden states and the likeliest next tokens are kept while
the target writes, so that training needs no further forward of the target.

Results are parts of `PART_SIZE` conversations, `part-00000.safetensors` and so on. An
interrupted run continues after the last whole part.
"""

import hashlib
import io
import json
import lzma
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from naive_speculate import ModelPair
from naive_speculate.text import Vocabulary, num_shared
from train.progress import Progress

PART_SIZE = 64
LIKELIEST = 64  # next tokens kept per position; the rest of the distribution counts as one token
# cached tokens of all rows together: long conversations run in narrower batches
ROW_TOKENS = 16_384
MAX_TURN, MAX_ANSWER, MAX_PASSAGE = 96, 192, 320
MOST_PASSAGES = 4_000
BEGINNING = 32  # tokens of a passage that a base target continues
GIVEN_BATCH_TOKENS = 2_048

OPENINGS = tuple(
    (Path(__file__).parent / "openings.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")
)
"""First words of some user turns, so that every kind of task occurs."""
PASSAGE_TASKS = (
    "Summarize the following text:\n\n{}",
    "{}\n\nSummarize this in a few sentences.",
    "Text: {}\n\nWhat happens in this text?",
    "Use the context to answer the question.\n\nContext: {}\n\n"
    "Question: Who is mentioned, and what do they do?",
    "Answer from this passage only.\n\n{}\n\nQuestion: What is it about?",
    "Continue this story:\n\n{}",
)


class Source(NamedTuple):
    """What the data was made from; a work folder belongs to one source."""

    target: str
    vocab_size: int
    hidden_size: int
    layers: list[int]
    tokenizer: str


@dataclass
class Conversation:
    """Tokens of one conversation while the target writes it."""

    tokens: list[int]  # all tokens known so far: given ones and sampled ones
    # index of the answer's first token; None while the user turn is being written
    answer_start: int | None
    limit: int  # length at which the turn or the answer being written ends
    temperature: float  # of the answer; 0 is greedy
    # the target's hidden states at the tokens fed so far, float16 `[len(layers) * hidden_size]`
    # each
    states: list[torch.Tensor] = field(default_factory=list)
    # for each token fed so far, token ids and log-probabilities of the likeliest next tokens
    likeliest: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    @property
    def num_answer_tokens(self) -> int:
        return len(self.states) - (self.answer_start or 0)


class Template:
    """The tokens that a chat template gives user turns.

    Args:
        tokenizer: A tokenizer with a chat template.

    Attributes:
        before: The tokens before every turn.
        between: Those between most turns and the answer. Some tokenizers merge them with the
            turn's last word, so compare a prompt with `prompt`.

    Raises:
        ValueError: If the template fails, does not contain the user's words, or has nothing before
            them.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self._vocabulary = tokenizer, Vocabulary(tokenizer)
        mark = "<<user turn>>"
        if mark not in self._applied(mark, tokenize=False):
            raise ValueError("the chat template does not contain the user's words unchanged")
        self.before = self.begun("")
        if not self.before:
            raise ValueError("the chat template has nothing before the user's words")
        ends = _common([self.prompt(word)[::-1] for word in _BEGINNINGS])[::-1]
        self.between = ends or self.prompt(mark)[len(self.begun(mark)) :]

    def prompt(self, turn: str) -> list[int]:
        """The token ids of a prompt with one user turn, as `chat=True` has them."""
        return list(self._applied(turn))

    def begun(self, opening: str) -> list[int]:
        """A prompt's tokens up to the words that a user turn begins with, as far as they do not
        depend on what follows."""
        opening = opening.rstrip()
        space = " " if opening else ""
        return _common([self.prompt(opening + space + word) for word in _BEGINNINGS])

    def turn(self, tokens: Sequence[int]) -> str:
        """The text of a turn, from the tokens of a prompt up to its end, without spaces around
        it."""
        texts = self._vocabulary.texts
        return "".join(texts(tokens)).removeprefix("".join(texts(self.before))).strip()

    def _applied(self, turn: str, **options: Any) -> Any:
        try:
            return self.tokenizer.apply_chat_template(
                [{"role": "user", "content": turn}],
                add_generation_prompt=True,
                return_dict=False,
                **options,
            )
        except Exception as error:  # a template is a program, which may fail in any way
            said = f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
            raise ValueError(f"the chat template fails: {said}") from None


_BEGINNINGS = ("a", "The", "1")  # words with no token in common, whatever the tokenizer


def _common(token_ids: Sequence[list[int]]) -> list[int]:
    """The common beginning of several lists."""
    first, *others = token_ids
    return first[: min(num_shared(first, other) for other in others)]


def chat_template(tokenizer: Any) -> Template | None:
    """The tokenizer's chat template; None for a base model without one."""
    return Template(tokenizer) if getattr(tokenizer, "chat_template", None) else None


def beginning(tokenizer: Any, passage: Sequence[int]) -> list[int]:
    """The first tokens of a passage, as those of a prompt of text."""
    return list(tokenizer(tokenizer.decode(passage)).input_ids)[:BEGINNING]


def source_of(pair: ModelPair, target: str, layers: Sequence[int]) -> Source:
    """Describe the target, or raise a `ValueError` if no drafter can be trained for it."""
    model: Any = pair.target
    if pair.tokenizer is None:
        raise ValueError(f"--target {target}: it has no tokenizer")
    if not hasattr(model, "num_layers") or not hasattr(model, "hidden_size"):
        raise ValueError(
            f"--target {target}: {type(model).__name__} returns no hidden states, and a head reads"
            " those"
        )
    if max(layers) > model.num_layers or min(layers) < 0:
        raise ValueError(
            f"--layers {' '.join(map(str, layers))}: the target has {model.num_layers} layers"
        )
    tokens = json.dumps(sorted(pair.tokenizer.get_vocab().items())).encode()
    digest = hashlib.sha256(tokens).hexdigest()[:16]
    return Source(target, model.vocab_size, model.hidden_size, list(layers), digest)


def open_work(work: Path, source: Source) -> None:
    """Create the work folder, or check that it holds data of the same source."""
    path = work / "data.json"
    if not path.exists():
        with whole_file(path) as partial:
            work.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(source._asdict(), indent=1) + "\n", encoding="utf-8")
        return
    try:
        recorded = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    for name, value in source._asdict().items():
        if name != "target" and recorded.get(name) != value:
            raise ValueError(
                f"--work {work}: its data has {name} {recorded.get(name)}, the target has {value}"
            )


def parts(work: Path) -> list[Path]:
    """The finished parts, oldest first."""
    return sorted(work.glob("part-[0-9]*.safetensors"))


def answer_tokens(path: Path) -> int:
    """Number of answer tokens in a part."""
    part = load_whole(path)
    return int((part["lengths"] - part["answer_starts"]).sum())


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A file to write, which takes its place in the work folder once it is whole. Raises
    `ValueError` if it cannot be written."""
    partial = path.with_suffix(".partial")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    # safetensors and torch have errors of their own for a full disk
    except (OSError, SafetensorError, RuntimeError) as error:
        raise ValueError(f"--work {path.parent}: cannot be written: {error}") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def save_whole(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Write a file of tensors in a work folder, whole or not at all."""
    with whole_file(path) as partial:
        save_file(tensors, partial)


def load_whole(path: Path) -> dict[str, torch.Tensor]:
    """Read a file of a work folder. Raises `ValueError` if it is damaged."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, or was not copied in full: {error}") from None


def write_part(work: Path, kept: Sequence[Conversation]) -> None:
    """Write finished conversations as a new part, whole or not at all."""
    starts = [c.answer_start or 0 for c in kept]
    # The state at the answer's first token predicts its second one, so the tops start one token
    # before the answer.
    tops = [
        top
        for c, start in zip(kept, starts, strict=True)
        for top in c.likeliest[start - 1 : len(c.states)]
    ]
    tensors = {
        "tokens": torch.tensor(
            [t for c in kept for t in c.tokens[: len(c.states)]], dtype=torch.int32
        ),
        "lengths": torch.tensor([len(c.states) for c in kept], dtype=torch.int32),
        "answer_starts": torch.tensor(starts, dtype=torch.int32),
        "states": torch.stack([state for c in kept for state in c.states]),
        "top_ids": torch.stack([ids for ids, _ in tops]),
        "top_log_probs": torch.stack([log_probs for _, log_probs in tops]),
    }
    number = len(parts(work))
    while (
        path := work / f"part-{number:05d}.safetensors"
    ).exists():  # a damaged part may have been removed
        number += 1
    save_whole(tensors, path)


class Collector:
    """Lets the target write conversations, many rows at once."""

    def __init__(self, pair: ModelPair, source: Source, seed: int) -> None:
        self.target: Any = pair.target
        self.tokenizer = pair.tokenizer
        self.layers = source.layers
        self.template = chat_template(self.tokenizer)
        self.openings = {
            text: self.template.begun(text) if self.template else [] for text in ("", *OPENINGS)
        }
        self.ends = set(getattr(self.target, "eos_token_ids", ()))
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def write(self, passages: Sequence[list[int]], longest: int) -> Iterator[Conversation]:
        """Conversations without end; with passages, each is about one of them."""
        count = max(4, min(PART_SIZE, ROW_TOKENS // longest))
        cache = self.target.new_cache(count)
        rows = [self._begin(passages) for _ in range(count)]
        while True:
            self._step(rows, cache)
            for index, row in enumerate(rows):
                if self._finished(row):
                    if row.num_answer_tokens >= 8:
                        yield row
                    rows[index] = self._begin(passages)
                    cache.clear_row(index)

    def _begin(self, passages: Sequence[list[int]]) -> Conversation:
        temperature = self.random.choice((0.0, 0.0, 0.8, 1.0))
        passage = self.random.choice(passages) if passages else []
        if self.template is None:
            start = beginning(self.tokenizer, passage)
            return Conversation(start, len(start), len(start) + MAX_ANSWER, temperature)
        if passage:
            turn = self.random.choice(PASSAGE_TASKS).format(self.tokenizer.decode(passage))
            tokens = self.template.prompt(turn)
            return Conversation(tokens, len(tokens), len(tokens) + MAX_ANSWER, temperature)
        opening = self.random.choice(OPENINGS) if self.random.random() < 0.4 else ""
        tokens = list(self.openings[opening])
        return Conversation(tokens, None, len(tokens) + MAX_TURN, temperature)

    @torch.inference_mode()
    def _step(self, rows: Sequence[Conversation], cache: Any) -> None:
        """Feed one token of every row, keep what the target computed, and sample where no token
        is given."""
        query = torch.tensor([[row.tokens[len(row.states)]] for row in rows])
        logits, states = self.target.forward(
            query, cache.rows(range(len(rows))), num_logits=1, layers=self.layers
        )
        log_probs, ids = (part.cpu() for part in likeliest(logits[:, -1]))
        states = states[:, -1].half().cpu()
        writing = torch.tensor([row.answer_start is None for row in rows])
        temperature = torch.tensor(
            [1.0 if row.answer_start is None else row.temperature for row in rows]
        )
        chosen = sample(
            ids, log_probs, temperature, torch.where(writing, 0.95, 1.0), self.generator
        ).tolist()
        kept_ids, kept_log_probs = ids.to(torch.int32), log_probs.half()
        for index, row in enumerate(rows):
            row.states.append(states[index])
            row.likeliest.append((kept_ids[index], kept_log_probs[index]))
            if len(row.states) == len(row.tokens):
                if row.answer_start is None and (
                    chosen[index] in self.ends or len(row.tokens) >= row.limit
                ):
                    if not self._ask(row):
                        cache.clear_row(index)
                else:
                    row.tokens.append(chosen[index])

    def _ask(self, row: Conversation) -> bool:
        """End a user turn: the whole prompt, with the template's answer header, is to be answered.
        Returns whether the target has read its beginning; else it reads the prompt again."""
        assert self.template is not None
        read = row.tokens
        row.tokens = self.template.prompt(self.template.turn(read))
        row.answer_start = len(row.tokens)
        row.limit = row.answer_start + MAX_ANSWER
        if len(read) < len(row.tokens) and row.tokens[: len(read)] == read:
            return True
        row.states, row.likeliest = [], []
        return False

    def _finished(self, row: Conversation) -> bool:
        if row.answer_start is None or len(row.states) <= row.answer_start:
            return False
        return len(row.states) >= row.limit or row.tokens[len(row.states) - 1] in self.ends


def likeliest(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and ids of the `LIKELIEST` next tokens, from logits `[…, vocab_size]`."""
    logits = logits.float()
    top = logits.topk(min(LIKELIEST, logits.shape[-1]))
    return top.values - logits.logsumexp(-1, keepdim=True), top.indices


def sample(
    ids: torch.Tensor,
    log_probs: torch.Tensor,
    temperature: torch.Tensor,
    top_p: torch.Tensor,
    generator: torch.Generator,
) -> torch.Tensor:
    """One token per row from its likeliest ones (descending, `[rows, n]`), at its own
    temperature and top-p; 0 is greedy."""
    scaled = torch.softmax(log_probs / temperature.clamp_min(1e-3)[:, None], -1)
    before = scaled.cumsum(-1) - scaled
    kept = scaled.masked_fill(before >= top_p[:, None], 0.0)
    drawn = torch.multinomial(kept, 1, generator=generator)
    chosen = torch.where(temperature[:, None] == 0, 0, drawn)
    return ids.gather(-1, chosen)[:, 0]


@torch.inference_mode()
def score(
    target: Any, layers: Sequence[int], batch: Sequence[tuple[list[int], list[int]]]
) -> list[Conversation]:
    """Given conversations (prompt and answer token ids), each with what the target computes
    there, in one forward."""
    rows = [prompt + answer for prompt, answer in batch]
    width = max(map(len, rows))
    query = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    cache = target.new_cache(len(rows))
    logits, states = target.forward(query, cache.rows(range(len(rows))), layers=layers)
    scored = []
    for index, ((prompt, _), tokens) in enumerate(zip(batch, rows, strict=True)):
        log_probs, ids = (part.cpu() for part in likeliest(logits[index, : len(tokens)]))
        tops = list(zip(ids.to(torch.int32), log_probs.half(), strict=True))
        kept = list(states[index, : len(tokens)].half().cpu())
        scored.append(Conversation(tokens, len(prompt), len(tokens), 0.0, kept, tops))
    return scored


def _text_of(path: Path) -> str:
    try:
        content = (lzma.decompress if path.suffix == ".xz" else bytes)(path.read_bytes())
        # with line ends of one kind, and without a mark at the beginning
        return io.TextIOWrapper(io.BytesIO(content), "utf-8-sig").read()
    except (ValueError, lzma.LZMAError) as error:
        raise ValueError(f"{path} holds no text in UTF-8: {error}") from None


def read_given(path: Path, vocab_size: int) -> list[tuple[list[int], list[int]]]:
    """Conversations of a JSON-lines file with `prompt` and `answer` token ids; `.xz` files are
    unpacked. Empty lines are skipped."""
    pairs = []
    for number, line in enumerate(io.StringIO(_text_of(path)), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            prompt, answer = list(map(int, record["prompt"])), list(map(int, record["answer"]))
        except (ValueError, KeyError, TypeError, OverflowError):
            raise ValueError(
                f"--given {path}: line {number} has no token ids in prompt and answer"
            ) from None
        if prompt and max(prompt + answer) >= vocab_size:
            raise ValueError(
                f"--given {path}: line {number} has token {max(prompt + answer)}, the target has"
                f" {vocab_size}"
            )
        if len(prompt) > 1 and len(answer) > 1:
            pairs.append((prompt, answer))
    return pairs


def read_passages(paths: Sequence[Path], tokenizer: Any, seed: int) -> list[list[int]]:
    """Up to `MOST_PASSAGES` passages of `MAX_PASSAGE` tokens at most, from random places of text
    files (`.xz` files are unpacked)."""
    chooser, passages = random.Random(seed), []
    for path in paths:
        text = _text_of(path)
        for _ in range(MOST_PASSAGES // len(paths)):
            at = chooser.randrange(max(1, len(text) - 3_000))
            start = text.find("\n", at) + 1
            end = start + chooser.randrange(400, 1_600)
            passage = text[start : text.find(".", end) + 1].replace("<|endoftext|>", "").strip()
            ids = tokenizer(passage, add_special_tokens=False).input_ids[:MAX_PASSAGE]
            if len(ids) > 40:
                passages.append(list(ids))
    return passages


def collect(
    pair: ModelPair,
    source: Source,
    work: Path,
    num_tokens: int,
    conversations: Path | None,
    texts: Sequence[Path],
    seed: int,
) -> None:
    """Write parts until the work folder holds `num_tokens` answer tokens: those of the given
    `conversations` first, then the target's own.

    With texts, every sixth part of an instruction-tuned target is about passages of them.
    """
    open_work(work, source)
    progress = Progress("data", num_tokens, "answer tokens", sum(map(answer_tokens, parts(work))))
    if conversations is not None:
        _score_given(pair, source, work, read_given(conversations, source.vocab_size), progress)
    seed += len(parts(work))
    collector = Collector(pair, source, seed)
    if collector.template is None and not texts:
        raise ValueError(
            "--text is needed: the target has no chat template, so it continues given text"
        )
    passages = read_passages(texts, pair.tokenizer, seed) if texts else []
    own = collector.write([] if collector.template else passages, 320)
    about = collector.write(passages, 640) if passages and collector.template else own
    while progress.done < num_tokens:
        written = []
        for row in islice(about if len(parts(work)) % 6 == 5 else own, PART_SIZE):
            progress.add(row.num_answer_tokens)
            written.append(row)
        write_part(work, written)
    progress.print()


def _score_given(
    pair: ModelPair, source: Source, work: Path, pairs: list[Any], progress: Progress
) -> None:
    """Score given conversations, in parts of similar lengths; those of earlier runs are skipped."""
    lengths = [len(prompt) + len(answer) for prompt, answer in pairs]
    order = sorted(range(len(pairs)), key=lengths.__getitem__)
    chunks = [order[at : at + PART_SIZE] for at in range(0, len(order), PART_SIZE)]
    random.Random(0).shuffle(chunks)
    for chunk in chunks[len(parts(work)) :]:
        size, rows = max(1, GIVEN_BATCH_TOKENS // lengths[chunk[-1]]), list[Conversation]()
        for at in range(0, len(chunk), size):
            rows += score(
                pair.target, source.layers, [pairs[index] for index in chunk[at : at + size]]
            )
            progress.add(sum(row.num_answer_tokens for row in rows[at:]))
        write_part(work, rows)
