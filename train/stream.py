"""Stage 1 for a GPU: the target writes many conversations at once, one token of each per step,
and only tokens are kept.

Rows do not wait for each other: where a conversation has ended, its row begins the next one.
Keys and values are a ring of places, of which each row sees those since its conversation's
start. On CUDA a step is one captured graph.
"""

import math
import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from naive_speculate.models.llama.cuda_graphs import Place
from naive_speculate.models.llama.torch import TorchLlama
from naive_speculate.models.llama.weights import LlamaLayer, rotation
from train.data import MAX_ANSWER, MAX_TURN, OPENINGS, PASSAGE_TASKS, Template, beginning
from train.progress import Progress
from train.texts import MIN_ANSWER, Texts, joined, whole_conversations

# kinds of tokens: given or a user turn's, an answer's, a conversation's first one
PROMPT, ANSWER, FIRST = range(3)
# what a row does: it reads given tokens, or writes a user turn or an answer
GIVEN, TURN, ANSWERING = range(3)
MAX_STEPS = 16_384  # of one stream, which needs a rotary position for each
CHUNK = 128  # steps whose tokens are fetched together
UNLIKELY = (
    0.02  # a user turn has no token with less than this share of the likeliest one's probability
)
OWN_PASSAGE = 120  # an answer of at least this length can be the passage of a later question


class _RingLlama(TorchLlama):
    """One token per row; the queries that share a key attend together, which reads each key
    once."""

    def attend(self, index: int, layer: LlamaLayer, normed: Tensor, place: Place) -> Tensor:
        queries, keys, values = self.project(layer, normed, place.rotation)
        all_keys, all_values = place.write(index, keys, values)
        mask = place.masks[self.shape.windows[index]]
        together = queries.squeeze(2).unflatten(1, (self.shape.num_kv_heads, -1))
        mask = None if mask is None else mask.expand(-1, *together.shape[1:3], -1)
        attended = F.scaled_dot_product_attention(together, all_keys, all_values, attn_mask=mask)
        return F.linear(attended.flatten(1)[:, None], layer.output, layer.output_bias)


class Stream:
    """`rows` conversations at once.

    Args:
        lean: The target's forward.
        prompts: Token ids of which each conversation begins with one, drawn at random.
        then: What the target writes after it: a `TURN`, or an answer (`ANSWERING`).
        between: The template's tokens after a user turn.
        ends: The tokens that end a turn.
        rows: How many conversations are written at once.
    """

    def __init__(
        self,
        lean: TorchLlama,
        prompts: list[list[int]],
        then: int,
        between: list[int],
        ends: Sequence[int],
        rows: int,
    ) -> None:
        self.model = _RingLlama(lean.shape, lean.weights, lean.rotary)
        self.rows, self.device = rows, lean.device
        readings, self.then = [*prompts, between], then
        if not all(prompts) or (then == TURN and not between):
            raise ValueError(
                "--stream: the chat template has nothing before or after the user's words"
            )
        self.between, longest = len(prompts), max(map(len, readings))
        self.ends = torch.tensor(list(ends), dtype=torch.int64, device=self.device)
        self.tables = self.model.rotary.up_to(MAX_STEPS)
        self.readings = torch.tensor(
            [ids + [0] * (longest - len(ids)) for ids in readings], device=self.device
        )
        self.lengths = torch.tensor([len(ids) for ids in readings], device=self.device)
        self.width = longest + len(between) + MAX_TURN * (self.then == TURN) + MAX_ANSWER + 8
        self.width += -self.width % 8  # attention under a mask wants multiples of 8
        ring = (
            lean.shape.num_layers,
            rows,
            lean.shape.num_kv_heads,
            self.width,
            lean.shape.head_dim,
        )
        self.keys, self.values = (
            torch.zeros(ring, dtype=lean.dtype, device=self.device) for _ in range(2)
        )
        self.now = torch.tensor([0], device=self.device)
        # the given tokens that a row reads
        self.which = torch.randint(self.between, (rows,), device=self.device)
        self.read = torch.ones_like(self.which)  # how many of them
        self.doing, self.count, self.start = (torch.zeros_like(self.which) for _ in range(3))
        self.token, self.kind = self.readings[self.which, 0], torch.full_like(self.which, FIRST)
        self.temperature = self._temperatures()
        # tokens and kinds
        self.recent = torch.zeros(CHUNK, 2, rows, dtype=torch.int32, device=self.device)

    def _temperatures(self) -> Tensor:
        """Half of the answers are greedy, an eighth are at 0.7, the others at 1."""
        drawn = torch.rand(self.rows, device=self.device)
        return torch.where(drawn < 0.5, 0.0, torch.where(drawn < 0.625, 0.7, 1.0))

    @torch.no_grad()
    def step(self) -> None:
        """Every row reads its token and chooses the next one; nothing waits for the host."""
        now, slot = self.now, self.now % self.width
        self.recent.index_copy_(0, now % CHUNK, torch.stack([self.token, self.kind])[None].int())
        age = (slot - torch.arange(self.width, device=self.device)) % self.width
        visible = age <= (now - self.start)[:, None]
        masks: dict[int | None, Tensor | None] = {
            window: (visible if window is None else visible & (age < window))[:, None, None]
            for window in set(self.model.shape.windows)
        }

        def write(index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            for ring, new in ((self.keys, keys), (self.values, values)):
                ring[index].index_copy_(2, slot, new)
            return self.keys[index], self.values[index]

        rotated = rotation(self.tables, now.expand(self.rows, 1), self.model.dtype)
        logits, _ = self.model.compute([self.token[:, None]], Place(rotated, masks, write), 1)
        reading = (self.doing == GIVEN) & (self.read < self.lengths[self.which])
        begins = (self.doing == GIVEN) & ~reading
        after = torch.where(self.which == self.between, ANSWERING, self.then)
        doing = torch.where(begins, after, self.doing)
        self._follow(
            self._chosen(logits[:, 0], doing),
            doing,
            reading,
            torch.where(begins, 0, self.count) + 1,
        )
        now += 1

    def _chosen(self, logits: Tensor, doing: Tensor) -> Tensor:
        """Draws from softmax(logits / T), as the argmax of logits + T · Gumbel noise; turns are
        drawn at temperature 1."""
        logits = logits.float()
        turn = (doing == TURN)[:, None]
        temperature = torch.where(turn, 1.0, self.temperature[:, None])
        least = logits.amax(-1, keepdim=True) + math.log(UNLIKELY)
        noise = torch.empty_like(logits).exponential_().log_()
        return torch.where(
            turn & (logits < least), -torch.inf, logits - temperature * noise
        ).argmax(-1)

    def _follow(self, chosen: Tensor, doing: Tensor, reading: Tensor, count: Tensor) -> None:
        """Each row's next token. `count`: tokens of its turn or answer, the chosen one included."""
        answered = (
            (doing == ANSWERING)
            & (count > 1)
            & (torch.isin(self.token, self.ends) | (count > MAX_ANSWER))
        )
        asked = (doing == TURN) & (torch.isin(chosen, self.ends) | (count > MAX_TURN))
        restarts = answered | asked
        another = torch.randint(self.between, (self.rows,), device=self.device)
        which = torch.where(answered, another, torch.where(asked, self.between, self.which))
        read, reads = torch.where(restarts, 0, self.read), reading | restarts
        token = torch.where(
            reads, self.readings[which, read.clamp_max(self.readings.shape[1] - 1)], chosen
        )
        kind = torch.where(~reads & (doing == ANSWERING), ANSWER, PROMPT)
        for state, new in (
            (self.start, torch.where(answered, self.now + 1, self.start)),
            (self.temperature, torch.where(answered, self._temperatures(), self.temperature)),
            (self.kind, torch.where(answered, FIRST, kind)),
            (self.read, torch.where(reads, read + 1, read)),
            (self.which, which),
            (self.count, torch.where(restarts, 0, count)),
            (self.doing, torch.where(restarts, GIVEN, doing)),
            (self.token, token),
        ):
            state.copy_(new)

    def write(self, num_tokens: int, progress: Progress) -> Texts:
        """Step until about `num_tokens` answer tokens are written, or `MAX_STEPS` times; the
        conversations that have ended."""
        on_device = torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()
        with on_device:
            return self._collect(
                self._captured() if self.device.type == "cuda" else self.step, num_tokens, progress
            )

    def _collect(self, again: Callable[[], None], num_tokens: int, progress: Progress) -> Texts:
        columns = list[Tensor]()
        done = -self.rows * MAX_ANSWER  # what unfinished conversations may hold
        while done < num_tokens and int(self.now) < MAX_STEPS:
            for _ in range(CHUNK - int(self.now) % CHUNK):
                again()
            columns.append(self.recent.clone().cpu())
            new = int((columns[-1][:, 1] == ANSWER).sum())
            done += new
            progress.add(new)
        tokens, kinds = torch.cat(columns).permute(1, 2, 0)
        return whole_conversations(tokens, kinds == ANSWER, kinds == FIRST)

    def _captured(self) -> Callable[[], None]:
        """The step as a graph, after two that are computed as usual."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.step()
            self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def stream(
    pair: Any,
    template: Template | None,
    passages: Sequence[list[int]],
    num_tokens: int,
    rows: int,
    seed: int,
) -> Texts:
    """Conversations with `num_tokens` answer tokens in all: user turns that the target begins
    itself; with passages, a seventh is about those and about its own answers. Where a turn has
    other tokens in the whole prompt, the target answers that one instead. A base target
    continues the passages. Raises a `ValueError` if the target cannot write them."""
    lean = pair.target._forward
    ends, chooser = pair.target.eos_token_ids, random.Random(seed)
    torch.manual_seed(seed)
    progress = Progress("data", num_tokens, "answer tokens")

    def written(prompts: list[list[int]], then: int, count: int, rows: int) -> Texts:
        batches, between = list[Texts](), template.between if template else []
        while (done := sum(int(texts.answers.sum()) for texts in batches)) < count:
            try:
                batches.append(
                    Stream(lean, prompts, then, between, ends, rows).write(count - done, progress)
                )
            except torch.OutOfMemoryError:
                raise ValueError(
                    f"--stream {rows}: the memory of {lean.device} is too small for this many rows"
                ) from None
            if not len(batches[-1].lengths):
                raise ValueError(
                    f"--stream: the target's answers have fewer than {MIN_ANSWER} tokens"
                )
        return joined(batches)

    if template is None:
        prompts = [beginning(pair.tokenizer, passage) for passage in passages]
        texts = written(prompts, ANSWERING, num_tokens, rows)
    else:
        openings = [template.begun(text) for text in (*[""] * len(OPENINGS), *OPENINGS)]
        share = num_tokens * 6 // 7 if passages else num_tokens
        texts, others = _as_rendered(written(openings, TURN, share, rows), template)
        missing = share - int(texts.answers.sum())
        if others and missing > 0:
            texts = joined([texts, written(others, ANSWERING, missing, rows)])
        if passages:
            prompts = _about_passages(passages, texts, template, pair.tokenizer, chooser)
            texts = joined(
                [texts, written(prompts, ANSWERING, num_tokens - share, max(1, rows // 2))]
            )
    progress.print()
    return texts


def _about_passages(
    passages: Sequence[list[int]],
    texts: Texts,
    template: Template,
    tokenizer: Any,
    chooser: random.Random,
) -> list[list[int]]:
    """Prompts with tasks about passages and about as many of the target's own answers."""
    some = map(texts.conversation, range(min(len(texts.lengths), 4 * len(passages))))
    own = [
        answer
        for tokens, answers in some
        if len(answer := tokens[answers][:-1].tolist()) >= OWN_PASSAGE
    ]
    about = [
        tokenizer.decode(chooser.choice(source))
        for source in (passages, own or passages)
        for _ in passages
    ]
    return [template.prompt(chooser.choice(PASSAGE_TASKS).format(text)) for text in about]


def _as_rendered(texts: Texts, template: Template) -> tuple[Texts, list[list[int]]]:
    """The conversations whose prompts are tokens of the template for the turns that the target
    wrote; and those tokens for the turns of all others."""
    same, others = [], []
    for number in range(len(texts.lengths)):
        prompt = texts.prompt(number)
        turn = template.turn(prompt[: len(prompt) - len(template.between)])
        if prompt == (rendered := template.prompt(turn)):
            same.append(number)
        else:
            others.append(rendered)
    return texts.chosen(torch.tensor(same, dtype=torch.int64)), others
