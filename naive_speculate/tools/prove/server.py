"""Requests to an OpenAI-compatible completions server."""

import contextlib
import json
import math
import threading
import time
from dataclasses import dataclass, replace
from email.utils import formatdate, parsedate_to_datetime
from itertools import count, product
from typing import Any

import httpx

_SWITCHED_OFF: tuple[dict[str, Any], ...] = (
    {"top_k": 0, "min_p": 0, "repeat_penalty": 1.0, "repetition_penalty": 1.0},
    {"top_k": -1, "min_p": 0},
    {},
)
"""Fields, by no standard, that switch off what servers switch on by default; the first that a
server takes are used."""
_ALWAYS = {"top_p": 1, "presence_penalty": 0, "frequency_penalty": 0}
# how many of the most probable tokens are requested: OpenAI's own API allows 5
_MOST_LIKELY = 10, 5
_LIMITS = (1, 2, 3, 4, 5, 8)  # how many servers list at most, whatever is requested
_TIMEOUT = 120.0  # seconds until an answer is whole
_BUSY = (429, 503)
_MOST_WAITING = 600.0  # seconds for which one request waits for a busy server
_COMPLETIONS = 4  # requested at once
_IDS = {"return_tokens_as_token_ids": True}  # vLLM's: each token is its own entry then
_NEVER_HELPED = (401, 403, 404, 405, *_BUSY)


class ServerError(ValueError):
    """What a server did wrong, in one line; `refused`: the request is bad, `busy`: for too long."""

    def __init__(self, message: str, refused: bool = False, busy: bool = False) -> None:
        super().__init__(message)
        self.refused, self.busy = refused, busy


Entries = tuple[tuple[str, float], ...]
"""Tokens' texts and log-probabilities, the most probable first. Several may have one text."""
Context = tuple[int, float, tuple[str, ...]]
"""A prompt's index, the temperature at which logprobs are stated, and the tokens so far."""
_WHOLE = 0.999  # the probability from which a short list is the whole distribution


def is_missing(entries: Entries, num_top: int) -> bool:
    """As llama.cpp's server leaves logprobs out in steps with drafts."""
    return not entries or (len(entries) == 1 < num_top and entries[0][1] == 0)


def is_short(entries: Entries, num_top: int) -> bool:
    """Whether entries are missing from a list, because tokens of one text were merged."""
    return len(entries) < num_top and sum(math.exp(value) for _, value in entries) < _WHOLE


@dataclass(frozen=True)
class Answer:
    """One completion."""

    text: str
    tokens: tuple[str, ...]  # the text of each token, if the server reports logprobs
    # at each token the most probable tokens' texts and log-probabilities, most probable first
    top: tuple[Entries, ...]
    ended: bool  # whether the model ended it, not the limit
    ids: tuple[int, ...] = ()  # of the tokens, if the server states them


class Server:
    """One model of a server: its URL up to /v1, the model's name, fields and headers for every
    request, and the seconds within which it must answer."""

    deadline = math.inf  # of all requests, on `time.monotonic`
    refuses_ids = False  # whether it takes no ids after a text
    text_only = False  # whether the tokens are ignored, as several have one text

    def __init__(
        self,
        endpoint: str,
        model: str,
        body: dict[str, Any],
        headers: dict[str, str],
        seconds: float = _TIMEOUT,
    ) -> None:
        if not endpoint.startswith(("http://", "https://")):
            raise ValueError(f"endpoint must begin with http:// or https://, got {endpoint!r:.80}")
        self.url = endpoint.rstrip("/") + "/completions"
        self.model, self.fields, self.num_top = model, dict(body), _MOST_LIKELY[0]
        self.seconds, self._closed = min(seconds, _TIMEOUT), threading.Event()
        try:
            self.client = httpx.Client(headers=headers, limits=httpx.Limits(max_connections=None))
            httpx.URL(self.url)
        except (httpx.InvalidURL, ValueError) as error:
            raise ValueError(f"endpoint or header is not valid: {error}") from None

    def complete(self, prompt: str | list[str | int], **fields: Any) -> list[Answer]:
        """The completions of a prompt. Raises `ServerError` if there are none."""
        body = {
            "model": self.model,
            "prompt": prompt,
            "logprobs": self.num_top,
            **_ALWAYS,
            **fields,
            **self.fields,
        }
        try:
            status, content = self._post_patiently(body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServerError(
                f"{self.url} cannot be reached: {str(error) or type(error).__name__}"
            ) from None
        text = content.decode("utf-8", "replace")
        if status != 200:
            said = " ".join(text.split())
            refused = 400 <= status < 500 and status not in _NEVER_HELPED
            raise ServerError(f"{self.url} answers with status {status}: {said:.200}", refused)
        try:
            if answers := [
                _answer(choice, self.num_top) for choice in json.loads(content)["choices"]
            ]:
                if self.text_only:
                    return [replace(answer, tokens=(), top=()) for answer in answers]
                return answers
            raise ValueError("no choices")
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise ServerError(
                f"{self.url} does not answer as a completions server: {text!r:.120}"
            ) from None

    def _post_patiently(self, body: dict[str, Any]) -> tuple[int, bytes]:
        """Waits for as long as a busy server says, or ever longer if it says nothing. Raises
        `ServerError` if that takes too long."""
        ends = min(time.monotonic() + _MOST_WAITING, self.deadline)
        for attempt in count():
            response, content = self._post(body)
            if response.status_code not in _BUSY:
                break
            asked = _retry_after(response.headers)
            seconds = 2.0**attempt if asked is None else max(asked, 0.1 * 2**attempt)
            if time.monotonic() + seconds > ends or self._closed.wait(seconds):
                raise ServerError(
                    f"{self.url} is busy (status {response.status_code}) and should not be asked"
                    f" for another {seconds:.0f} s: run the same command later; with --work FILE"
                    " it keeps the answers and continues from them",
                    busy=True,
                )
        return response.status_code, content

    def _post(self, body: dict[str, Any]) -> tuple[httpx.Response, bytes]:
        """Raises `httpx.ReadTimeout` if the answer is not whole in time, though parts of it
        arrive."""
        ends, parts = min(time.monotonic() + self.seconds, self.deadline), list[bytes]()
        left = max(ends - time.monotonic(), 0.01)
        with self.client.stream("POST", self.url, json=body, timeout=left) as response:
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > ends:
                    raise httpx.ReadTimeout("the answer took too long")
        return response, b"".join(parts)

    def adapt(self, prompt: str) -> Answer:
        """Find the fields that the server takes; returns the answer to one token."""
        fields, errors = self.fields, list[ServerError]()
        for self.num_top, off in product(_MOST_LIKELY, _SWITCHED_OFF):
            self.fields = off | fields
            try:
                return self.complete(prompt, max_tokens=1, temperature=1.0)[0]
            except ServerError as error:
                errors.append(error)
                if not error.refused:
                    raise
        raise errors[0]

    def merges(self, prompt: str) -> bool:
        """Whether the server merges tokens of one text into one entry. One that lists fewer tokens
        than requested has to list as many, and one that can name tokens by their ids has to.
        """
        fields = self.fields
        for more in ({}, _IDS):
            self.fields = fields | more
            try:
                if not self._is_short(prompt):
                    return False
            except ServerError as error:
                if not error.refused:
                    raise
        self.fields = fields
        return True

    def _is_short(self, prompt: str) -> bool:
        """However many are requested."""
        num_top = self.num_top
        for _ in range(2):
            answer = self.complete(prompt, max_tokens=1, temperature=1.0)[0]
            if not answer.top or not is_short(answer.top[0], self.num_top):
                return False
            if (num := len(answer.top[0])) not in _LIMITS:
                break
            self.num_top = num
        self.num_top = num_top
        return True

    def after(
        self, prompt: str, tokens: tuple[str, ...], ids: tuple[int, ...], temperature: float
    ) -> Entries:
        """What the server states for the first token after a prompt and tokens of its answer: by
        their ids where the server states these and takes them after a text, else by their text."""
        fields = {"max_tokens": 1, "temperature": temperature}
        if ids and not self.refuses_ids:
            try:
                answer = self.complete([prompt, *ids], **fields)[0]
                return answer.top[0] if answer.top else ()
            except ServerError as error:
                if not error.refused:
                    raise
                self.refuses_ids = True
        answer = self.complete(prompt + "".join(tokens), **fields)[0]
        return answer.top[0] if answer.top else ()

    def completions_per_request(self, prompt: str) -> int:
        try:
            return len(self.complete(prompt, max_tokens=1, temperature=1.0, n=_COMPLETIONS))
        except ServerError as error:
            if not error.refused:
                raise
            return 1

    def close(self) -> None:
        """What waits for the server fails."""
        self._closed.set()
        with contextlib.suppress(RuntimeError):  # a request may still run
            self.client.close()


def _retry_after(headers: httpx.Headers) -> float | None:
    """RFC 9110, 10.2.3; None if the answer does not say."""
    value = headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        until, now = (
            parsedate_to_datetime(date).timestamp()
            for date in (value, headers.get("date", formatdate()))
        )
    except (ValueError, OverflowError):
        return None
    return until - now


def _answer(choice: dict[str, Any], num_top: int) -> Answer:
    """OpenAI's format of completions, or of chats, which newer llama.cpp servers use for both."""
    logprobs = choice.get("logprobs") or {}
    ids = list[Any]()
    if logprobs.get("content"):
        content = logprobs["content"]
        tokens = [entry["token"] for entry in content]
        ids = [entry.get("id") for entry in content]
        listed = [
            [(top["token"], top["logprob"]) for top in entry.get("top_logprobs") or ()]
            for entry in content
        ]
    else:
        tokens = logprobs.get("tokens") or []
        listed = [list((top or {}).items()) for top in logprobs.get("top_logprobs") or []]
    # The sampled token may have been added to the list: what is tested must not depend on it.
    ordered = [sorted(entries, key=lambda item: -item[1])[:num_top] for entries in listed]
    top = tuple(tuple((str(text), float(value)) for text, value in entries) for entries in ordered)
    num = min(len(tokens), len(top))
    return Answer(
        str(choice["text"]),
        tuple(map(str, tokens[:num])),
        top[:num],
        choice.get("finish_reason") == "stop",
        tuple(ids[:num]) if all(isinstance(one, int) for one in ids[:num]) else (),
    )
