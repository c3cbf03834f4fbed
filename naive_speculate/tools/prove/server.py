"""Requests to an OpenAI-compatible completions server."""

import contextlib
import json
import math
import time
from dataclasses import dataclass
from itertools import product
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
_MOST_LIKELY = (
    10,
    5,
)  # how many of the most probable tokens are requested: OpenAI's own API allows 5
_TIMEOUT = 120.0  # seconds until an answer is whole
_COMPLETIONS = 4  # requested at once
_NEVER_HELPED = (401, 403, 404, 405)


class ServerError(ValueError):
    """What a server did wrong, in one line; `refused` is set if it answered that the request is
    bad."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True)
class Answer:
    """One completion."""

    text: str
    tokens: tuple[str, ...]  # the text of each token, if the server reports logprobs
    # at each token the most probable tokens' texts and log-probabilities, most probable first
    top: tuple[tuple[tuple[str, float], ...], ...]
    ended: bool  # whether the model ended it, not the limit


class Server:
    """One model of a server: its URL up to /v1, the model's name, fields and headers for every
    request, and the seconds within which it must answer."""

    deadline = math.inf  # of all requests, on `time.monotonic`

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
        self.seconds = min(seconds, _TIMEOUT)
        try:
            self.client = httpx.Client(headers=headers, limits=httpx.Limits(max_connections=None))
            httpx.URL(self.url)
        except (httpx.InvalidURL, ValueError) as error:
            raise ValueError(f"endpoint or header is not valid: {error}") from None

    def complete(self, prompt: str, **fields: Any) -> list[Answer]:
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
            status, content = self._post(body)
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
                return answers
            raise ValueError("no choices")
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise ServerError(
                f"{self.url} does not answer as a completions server: {text!r:.120}"
            ) from None

    def _post(self, body: dict[str, Any]) -> tuple[int, bytes]:
        """The status and the content of the answer. Raises `httpx.ReadTimeout` if it is not
        whole in time, though parts of it arrive."""
        ends, parts = min(time.monotonic() + self.seconds, self.deadline), list[bytes]()
        left = max(ends - time.monotonic(), 0.01)
        with self.client.stream("POST", self.url, json=body, timeout=left) as response:
            for part in response.iter_bytes():
                parts.append(part)
                if time.monotonic() > ends:
                    raise httpx.ReadTimeout("the answer took too long")
        return response.status_code, b"".join(parts)

    def adapt(self, prompt: str) -> Answer:
        """Find the fields that the server takes; returns the answer to one token. Raises
        `ServerError` if it takes none of them."""
        given, errors = self.fields, list[ServerError]()
        for self.num_top, off in product(_MOST_LIKELY, _SWITCHED_OFF):
            self.fields = off | given
            try:
                return self.complete(prompt, max_tokens=1, temperature=1.0)[0]
            except ServerError as error:
                errors.append(error)
                if not error.refused:
                    raise
        raise errors[0]

    def completions_per_request(self, prompt: str) -> int:
        """How many completions the server gives if several are requested; 1 if it refuses that."""
        try:
            return len(self.complete(prompt, max_tokens=1, temperature=1.0, n=_COMPLETIONS))
        except ServerError as error:
            if not error.refused:
                raise
            return 1

    def close(self) -> None:
        """Close the connections."""
        with contextlib.suppress(RuntimeError):  # a request may still run
            self.client.close()


def _answer(choice: dict[str, Any], num_top: int) -> Answer:
    """A completion from OpenAI's format of completions, or of chats, which newer llama.cpp
    servers use for both."""
    logprobs = choice.get("logprobs") or {}
    if logprobs.get("content"):
        tokens = [entry["token"] for entry in logprobs["content"]]
        listed = [
            {top["token"]: top["logprob"] for top in entry["top_logprobs"]}
            for entry in logprobs["content"]
        ]
    else:
        tokens, listed = logprobs.get("tokens") or [], logprobs.get("top_logprobs") or []
    # The sampled token may have been added to the list: what is tested must not depend on it.
    ordered = [sorted(entries.items(), key=lambda item: -item[1])[:num_top] for entries in listed]
    top = tuple(tuple((str(text), float(value)) for text, value in entries) for entries in ordered)
    num = min(len(tokens), len(top))
    return Answer(
        str(choice["text"]),
        tuple(map(str, tokens[:num])),
        top[:num],
        choice.get("finish_reason") == "stop",
    )
