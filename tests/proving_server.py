"""A tiny completions server with a real tiny model, with a correct or a biased sampler."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import torch

from naive_speculate.differing.scores import Scores
from naive_speculate.text import Vocabulary


class CompletionsServer(ThreadingHTTPServer):
    """Serves a pair's target.

    Args:
        pair: Its target is a tiny model with a tokenizer.
        fault: "" for none, "biased" for a sampler that prefers the second token, "greedy" for a wrong greedy token, "silent"
            for no logprobs.
    """

    def __init__(self, pair: Any, fault: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scores, self.vocabulary, self.fault = Scores(pair), Vocabulary(pair.tokenizer), fault
        self.known: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}
        self.sums: dict[tuple[tuple[int, ...], float], np.ndarray] = {}
        self.random, self.lock, self.num_requests = np.random.default_rng(3), threading.Lock(), 0

    def log_probs(self, ids: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Of all tokens, and the tokens from the most probable one."""
        if ids not in self.known:
            log_probs = torch.log_softmax(self.scores.whole(ids)[-1].double(), -1).numpy()
            self.known[ids] = log_probs, np.argsort(-log_probs)
        return self.known[ids]

    def drawn(self, ids: tuple[int, ...], temperature: float, biased: bool) -> int:
        if (ids, temperature) not in self.sums:
            log_probs, order = self.log_probs(ids)
            probs = np.exp(log_probs / temperature)
            probs[order[1]] *= 5 if biased else 1
            self.sums[ids, temperature] = np.cumsum(probs)
        sums = self.sums[ids, temperature]
        return int(np.searchsorted(sums, self.random.random() * sums[-1], side="right"))

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            self.num_requests += 1
            return {"choices": [self.choice(body) for _ in range(body.get("n", 1))]}

    def choice(self, body: dict[str, Any]) -> dict[str, Any]:
        ids, tokens, top = tuple(self.vocabulary.encode(body["prompt"])), [], []
        for _ in range(body["max_tokens"]):
            log_probs, order = self.log_probs(ids)
            token = int(order[3 if self.fault == "greedy" else 0])
            if body["temperature"]:  # the first token is drawn without drafts
                token = self.drawn(ids, body["temperature"], self.fault == "biased" and bool(tokens))
            tokens.append(self.vocabulary.text_of(token))
            top.append({self.vocabulary.text_of(int(i)): float(round(log_probs[i], 4)) for i in order[: body["logprobs"]]})
            ids = (*ids, token)
        logprobs = None if self.fault == "silent" else {"tokens": tokens, "top_logprobs": top}
        return {"text": "".join(tokens), "logprobs": logprobs, "finish_reason": "length"}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        one = self.server.fault == "one" and body.get("n", 1) > 1
        refused = one or "repetition_penalty" in body  # as strict servers refuse fields
        found = {"error": "unexpected field"} if refused else self.server.answer(body)
        said = json.dumps(found).encode()
        self.send_response(400 if refused else 200)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        """Nothing is printed."""


@contextmanager
def serving(pair: Any, fault: str = "") -> Iterator[CompletionsServer]:
    server = CompletionsServer(pair, fault)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
