"""Logprobs that a server leaves out, and those that it merges.

Some servers state no logprobs for the tokens of a step with drafts (llama.cpp's, build 11549):
an empty list, or the sampled token alone with 0.0. They are requested by prefix: the first token
after a prompt is never drafted. Others list tokens by their text, so that two tokens of one text
are one entry, with one's log-probability: such a list is too short.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from naive_speculate.tools.prove.plan import POSITIONS, Budget, Record, Request, Settings, requests
from naive_speculate.tools.prove.server import (
    Answer,
    Context,
    Entries,
    Server,
    ServerError,
    is_missing,
)

MOST = 150  # contexts of one prompt, temperature and position that are requested, the most common


def context_of(request: Request, answer: Answer, position: int, raw: bool) -> Context:
    """Where a token was sampled. Logprobs before temperature are the same at all of them."""
    return request.prompt, 1.0 if raw else request.temperature, answer.tokens[:position]


def fetch(server: Server, settings: Settings, record: Record, raw: bool, budget: Budget) -> None:
    """Ask for the logprobs that the recorded answers lack, one request for each context, as far as
    the budget allows. Raises `ServerError` if a request fails."""

    def top(item: tuple[Context, tuple[int, ...]]) -> tuple[Context, Entries] | None:
        (prompt, temperature, tokens), ids = item
        if not budget.begins():
            return None
        answered = server.after(settings.prompts[prompt], tokens, ids, temperature)
        return item[0], answered

    contexts = _unknown_contexts(settings, record, raw, server.num_top)
    with ThreadPoolExecutor(settings.concurrency) as pool:
        for answer in pool.map(top, contexts.items()):
            if answer is None:
                continue
            context, entries = answer
            if is_missing(entries, server.num_top):
                raise ServerError(
                    f"{server.url} states no logprobs for the first token after a prompt either:"
                    " give a local copy of the model with --reference FOLDER"
                )
            record.add_stated(context, entries)
    budget.note_time()


def _unknown_contexts(
    settings: Settings, record: Record, raw: bool, num_top: int
) -> dict[Context, tuple[int, ...]]:
    """The most common ones of each position first, with their tokens' ids if the server states
    them. Which are chosen depends on the tokens before, not on the token that is tested."""
    known = set(record.stated)
    counts: Counter[Context] = Counter()
    ids = dict[Context, tuple[int, ...]]()
    for request, answer, position in _tested(settings, record):
        context = context_of(request, answer, position, raw)
        if is_missing(answer.top[position], num_top):
            counts[context] += 1
            ids[context] = answer.ids[:position]
        else:
            known.add(context)
    chosen: dict[tuple[int, float, int], int] = defaultdict(int)
    contexts = {}
    for context, _ in counts.most_common():
        prompt, temperature, tokens = context
        group = prompt, temperature, len(tokens)
        if context not in known and chosen[group] < MOST:
            chosen[group] += 1
            contexts[context] = ids[context]
    return contexts


def _tested(settings: Settings, record: Record) -> Iterator[tuple[Request, Answer, int]]:
    """The first few tokens of sampled texts, all of greedy ones."""
    for request in requests(settings):
        for answer in record.answers.get(request.number, []):
            for position in range(len(answer.tokens)):
                if not request.temperature or position < POSITIONS:
                    yield request, answer, position
