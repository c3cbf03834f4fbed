"""`prove_lossless`: exact enumeration of any verifier or drafter."""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from operator import attrgetter
from typing import Any, cast

import torch

from naive_speculate.pair import ModelPair
from naive_speculate.sampling.params import SamplingParams
from naive_speculate.speculate.decoder import SpeculativeDecoder
from naive_speculate.speculate.draft import DRAFTERS, BatchDrafter
from naive_speculate.speculate.verify import VERIFIERS, Verifier, VerifyStrategy
from naive_speculate.tools.proofs.enumeration import (
    Enumeration,
    Outputs,
    enumerate_paths,
    largest_difference,
)
from naive_speculate.tools.proofs.paths import Deviation, Path, number, numbers
from naive_speculate.tools.proofs.rejection import (
    ERROR_RATE,
    SMALLEST_BIAS,
    Rejection,
    prove_rejection,
)
from naive_speculate.tools.proofs.result import Counterexample, Proof
from naive_speculate.tools.proofs.toys import ToyModel, pair_with_head

MAX_VOCABULARY = 8
_COARSE = 1e-6
_ATTRIBUTES = ("greedy", "lossy", "judges_all", "needs_uniforms", "matches_draws", "has_thresholds")


@dataclass(frozen=True)
class _Case:
    pair: ModelPair
    params: SamplingParams
    num_draft_tokens: int | str
    prompt: tuple[int, ...]
    name: str

    def enumerate(self, **options: object) -> Enumeration:
        return enumerate_paths(self.pair, list(self.prompt), self.params, detail="probs", **options)

    def describe(self, options: dict[str, Any]) -> str:
        default = SamplingParams().to_dict()
        changed = {
            name: value for name, value in self.params.to_dict().items() if value != default[name]
        }
        parameters = ", ".join(f"{name}={value!r}" for name, value in (options | changed).items())
        return f"{self.name}, prompt {list(self.prompt)}, {parameters}"


_LOSSLESS: tuple[str, ...] = (
    VerifyStrategy.SPECULATIVE_SAMPLING,
    VerifyStrategy.BLOCK_VERIFICATION,
)
"""The strategies that are proved with a drafter, where none is named."""


def prove_lossless(
    *,
    verifier: str | type[Verifier] | Verifier | None = None,
    drafter: str | type[BatchDrafter] | BatchDrafter | None = None,
    rejection: Rejection | None = None,
    pair: ModelPair | None = None,
    prompt: Sequence[int] | None = None,
    params: SamplingParams | None = None,
    num_draft_tokens: int | str | None = None,
    tolerance: float = 1e-12,
    smallest_bias: float = SMALLEST_BIAS,
    error_rate: float = ERROR_RATE,
) -> Proof:
    """Compare the real decoder's output distribution, over all paths of its random source, with
    that of plain decoding.

    Every uniform draw is placed on both sides of the stated acceptance probability, one rounding
    away and far away. Models are toys in float64 with a few tokens, unless a pair is given.

    `rejection` is a bare rejection sampler, of any engine: `f(target_dists, proposal_dists,
    candidate_tokens) -> (rejected_idx, resampled_token)`, as `speculative_sampling`; shapes `[k
    + 1, vocab_size]`, `[k, vocab_size]` and `[k]`. If it takes `random`, it must draw with
    `random.uniform()` and `random.categorical(probs)`, and is enumerated. Otherwise it is
    sampled: a G-test over as many samples as find the smallest bias worth finding with 90%
    power.

    Args:
        verifier: A name in `VERIFIERS`, a class or an instance; default: both lossless ones with
            uniform draws.
        drafter: A name in `DRAFTERS`, a class or an instance for at most 8 tokens; default: a
            draft model and copying drafters.
        rejection: A rejection sampler; then no other part may be given.
        pair: Models of few tokens, instead of several pairs of toys (with a head, if a head
            drafts).
        prompt: Token ids of the prompt, instead of two tokens.
        params: Sampling parameters, instead of several.
        num_draft_tokens: Draft tokens per step, instead of 1 to 3.
        tolerance: Largest difference that counts as equal, at least 1e-6 if draws are from float32.
        smallest_bias: For samples: the smallest bias worth finding, as total variation.
        error_rate: For samples: the rate of false alarms.

    Returns:
        Proof: Its `str()` is a readable report.

    Raises:
        ValueError: If neither is given, one is unknown, or it does not work with these models.
    """
    parts = {"verifier": verifier, "drafter": drafter, "pair": pair, "prompt": prompt}
    _check_parts(rejection, parts | {"params": params})
    if rejection is not None:
        return prove_rejection(rejection, smallest_bias, error_rate)
    prompt = None if prompt is None else tuple(prompt)
    own: dict[str, Any] = {"prompt": prompt, "params": params, "num_draft_tokens": num_draft_tokens}
    changes = {name: value for name, value in own.items() if value is not None}
    cases = [replace(case, **changes) for case in _cases(pair, drafter)]
    with ExitStack() as registered:
        ways = _ways(verifier, drafter, cases[0].pair, registered)
        return _prove(cases, ways, tolerance)


def _check_parts(rejection: Rejection | None, parts: dict[str, Any]) -> None:
    named = [name for name, part in parts.items() if part is not None]
    if rejection is not None:
        if named:
            raise ValueError(f"rejection is proved alone, without {', '.join(named)}")
    elif "verifier" not in named and "drafter" not in named:
        raise ValueError("verifier, drafter and rejection are all None: give at least one of them")
    elif "params" in named and parts["params"].greedy:
        raise ValueError(
            f"params must sample, got temperature={parts['params'].temperature}: greedy decoding"
            " does not use the verifier"
        )


def _ways(
    verifier: Any, drafter: Any, pair: ModelPair, registered: ExitStack
) -> list[tuple[str, str]]:
    strategies = _LOSSLESS if verifier is None else (_verifier(verifier, registered),)
    if drafter is not None:
        return list(product(strategies, [_drafter(drafter, registered)]))
    names = ("model", "suffix", "prompt_lookup")
    return list(product(strategies, [n for n in names if DRAFTERS[n].obstacle(pair) is None]))


def prove(name: str) -> Proof:
    """Prove a registered verifier or drafter, or `MODULE:NAME`, importable from the current
    directory; a function is a rejection sampler. Raises `ValueError` if it does not exist, or is
    neither."""
    if ":" not in name:
        if name not in VERIFIERS and name not in DRAFTERS:
            raise ValueError(
                f"prove takes MODULE:NAME or one of {', '.join([*VERIFIERS, *DRAFTERS])}, got"
                f" {name!r:.80}"
            )
        return prove_lossless(verifier=name) if name in VERIFIERS else prove_lossless(drafter=name)
    subject = _load(name)
    if _is_drafter(subject):
        return prove_lossless(drafter=subject)
    if callable(getattr(subject, "judge", None)):
        return prove_lossless(verifier=subject)
    if callable(subject) and not isinstance(subject, type):
        return prove_lossless(rejection=subject)
    known = "a verifier, which has judge(…), a drafter, which is derived from BatchDrafter"
    raise ValueError(f"{name!r:.80} must be {known}, or a function that samples by rejection")


def _is_drafter(subject: object) -> bool:
    """An instance or a class."""
    return isinstance(subject, BatchDrafter) or (
        isinstance(subject, type) and issubclass(subject, BatchDrafter)
    )


def _load(name: str) -> Any:
    module_name, _, attributes = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise ValueError(f"there is no module {missing!r:.80} here") from None
        raise ValueError(f"module {module_name!r} cannot be imported: {error}") from None
    except (Exception, SystemExit) as error:  # a module may fail in any way
        raise ValueError(
            f"module {module_name!r:.80} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    try:
        return attrgetter(attributes)(module)
    except AttributeError:
        raise ValueError(f"module {module_name!r} has no {attributes!r:.80}") from None


def _prove(cases: Sequence[_Case], parts: Sequence[tuple[str, str]], tolerance: float) -> Proof:
    total, drafted, largest, coarsest = 0, 0, 0.0, tolerance
    for case in cases:
        plain = case.enumerate(num_draft_tokens=0)
        for strategy, drafter in parts:
            options = {
                "num_draft_tokens": case.num_draft_tokens,
                "verify_strategy": str(strategy),
                "drafter": drafter,
            }
            try:
                enumeration = case.enumerate(**options)
            except Deviation as deviation:
                path = tuple(deviation.path)
                shown = Counterexample(str(deviation), case.describe(options), path)
                return Proof(False, math.nan, total, shown, tolerance)
            total, drafted = total + enumeration.num_paths, drafted + enumeration.num_drafted
            allowed = max(tolerance, _COARSE) if enumeration.coarse or plain.coarse else tolerance
            difference = largest_difference(enumeration.outputs, plain.outputs)
            coarsest, largest = max(coarsest, allowed), max(largest, difference)
            if not difference <= allowed:
                shown = _counterexample(case, enumeration, plain.outputs, allowed, options)
                return Proof(False, difference, total, shown, allowed)
    if not drafted:
        nothing = "nothing was drafted on any path, which proves nothing"
        shown = Counterexample(nothing, cases[0].describe(options))
        return Proof(False, math.nan, total, shown, tolerance)
    return Proof(True, largest, total, None, coarsest)


def _cases(pair: ModelPair | None, drafter: Any) -> Iterator[_Case]:
    if pair is not None:
        prompt = (1, min(2, pair.vocab_size - 1))
        yield _Case(pair, SamplingParams(max_tokens=3), 2, prompt, "this pair")
        return
    kind = DRAFTERS.get(drafter) if isinstance(drafter, str) else drafter
    role = getattr(kind, "role", None)
    for size, (seed, draft_seed), zeros, window, own in _TOYS:
        size = drafter.vocab_size if isinstance(drafter, BatchDrafter) else size
        name = f"toys of {size} tokens (seeds {seed} and {draft_seed})"
        if role in ("head", "block"):
            toys = pair_with_head(size, seed, block=role == "block")
        else:
            target = draft = ToyModel(size, seed, zeros=zeros)
            if draft_seed != seed:
                draft = ToyModel(size, draft_seed, zeros=zeros, temper=1.5)
            toys = ModelPair(target, draft)
        yield _Case(toys, SamplingParams(**own), window, (1, min(2, size - 1)), name)


_TOYS: tuple[tuple[int, tuple[int, int], bool, int, dict[str, Any]], ...] = (
    (3, (1, 2), True, 1, {"max_tokens": 2}),
    (3, (3, 4), False, 2, {"max_tokens": 3}),
    (2, (5, 6), False, 3, {"max_tokens": 4}),
    (3, (7, 7), True, 2, {"max_tokens": 2}),
    (3, (3, 4), True, 2, {"max_tokens": 3, "temperature": 0.7, "top_k": 2}),
    (2, (5, 6), False, 2, {"max_tokens": 5}),
)
"""Number of tokens, seeds of target and draft, whether some tokens are impossible, window,
parameters."""


def _counterexample(
    case: _Case, enumeration: Enumeration, plain: Outputs, tolerance: float, options: dict[str, Any]
) -> Counterexample:
    """The first distribution that differs, after the shortest generated text."""
    ours, theirs = _prefixes(enumeration.outputs), _prefixes(plain)
    texts = ours.keys() | theirs.keys()
    excess = {text: ours.get(text, 0.0) - theirs.get(text, 0.0) for text in texts}
    differing = [text for text in texts if text and not abs(excess[text]) <= tolerance]
    after = min(differing, key=lambda text: (len(text), text))[:-1]
    tokens = [*range(case.pair.vocab_size), *([-1] if (*after, -1) in texts else [])]
    got, expected = (
        tuple(joint.get((*after, token), 0.0) / joint.get(after, math.nan) for token in tokens)
        for joint in (ours, theirs)
    )
    most = max(tokens, key=lambda token: excess.get((*after, token), 0.0))
    shown = (*after, most)
    _, choices = max(
        path for output, path in enumeration.likeliest.items() if output[: len(shown)] == shown
    )
    decoder, prompt = SpeculativeDecoder(case.pair), list(case.prompt)
    path = Path(decoder, choices, prompt, case.params, detail="probs", **options)
    where = f"after the tokens {list(after)}" if after else "at the first token"
    words = (
        f"{where} the target's distribution is {numbers(expected)}, the decoder's is"
        f" {numbers(got)}; token {most} is too frequent, {number(ours.get(shown, 0.0))} instead of"
        f" {number(theirs.get(shown, 0.0))}"
    )
    if -1 in tokens and enumeration.message:
        words = f"{where} a run ends in an error: {enumeration.message}"
    if VERIFIERS[options["verify_strategy"]].greedy:
        words += (
            "; a greedy verifier takes the most probable token, which is correct at temperature 0"
            " only"
        )
    words += f"; {enumeration.hint}" if enumeration.hint else ""
    steps = tuple(path.describe())
    return Counterexample(words, case.describe(options), steps, after, expected, got)


def _prefixes(outputs: Outputs) -> Outputs:
    prefixes: Outputs = {}
    for tokens, probability in outputs.items():
        for length in range(len(tokens) + 1):
            prefixes[tokens[:length]] = prefixes.get(tokens[:length], 0.0) + probability
    return prefixes


def _register(
    what: str, registry: dict[str, Any], subject: Any, entry: Any, registered: ExitStack
) -> str:
    """Returns the name; what is not registered is, under its class's name, until `registered` is
    closed."""
    if isinstance(subject, str):
        if subject not in registry:
            raise ValueError(
                f"{what} must be one of {', '.join(registry)}, a class or an instance, got"
                f" {subject!r:.80}"
            )
        return str(subject)
    name = _name(subject)
    if (replaced := registry.get(name)) is None:
        registered.callback(registry.pop, name)
    else:
        registered.callback(registry.__setitem__, name, replaced)
    registry[name] = entry
    return name


def _name(subject: object) -> str:
    return subject.__name__ if isinstance(subject, type) else type(subject).__name__


def _verifier(verifier: str | type[Verifier] | Verifier, registered: ExitStack) -> str:
    entry: Any = verifier
    if not isinstance(verifier, str):
        name = f"verifier {_name(verifier)}"
        if not callable(getattr(verifier, "judge", None)):
            raise ValueError(
                f"{name} has no judge(target_probs, draft_probs, draft_token_ids, uniforms,"
                " lengths)"
            )
        if isinstance(verifier, type):
            try:
                entry = verifier()
            except TypeError as error:
                raise ValueError(
                    f"{name} cannot be constructed without arguments, so give an instance: {error}"
                ) from None
        if missing := [attribute for attribute in _ATTRIBUTES if not hasattr(entry, attribute)]:
            raise ValueError(
                f"{name} has no {', '.join(missing)}: derive it from"
                " naive_speculate.speculate.verify.Verifier"
            )
    return _register("verifier", VERIFIERS, verifier, entry, registered)


def _drafter(drafter: str | type[BatchDrafter] | BatchDrafter, registered: ExitStack) -> str:
    entry: Any = drafter
    if isinstance(drafter, BatchDrafter):
        if drafter.vocab_size > MAX_VOCABULARY:
            most = f"at most {MAX_VOCABULARY} can be enumerated: give the class"
            size = f"drafter is an instance for {drafter.vocab_size} tokens"
            raise ValueError(f"{size}, and {most}")
        entry = _Made(drafter)
    elif not isinstance(drafter, str) and not _is_drafter(drafter):
        raise ValueError(
            f"drafter {_name(drafter)} is not derived from"
            " naive_speculate.speculate.draft.BatchDrafter"
        )
    return _register("drafter", cast(dict[str, Any], DRAFTERS), drafter, entry, registered)


class _Made:
    """Returns an existing drafter in place of its class; has the class's attributes."""

    def __init__(self, drafter: BatchDrafter) -> None:
        self.drafter = drafter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.drafter, name)

    def __call__(self, pair: ModelPair, vocab_size: int, device: torch.device) -> BatchDrafter:
        if vocab_size != self.drafter.vocab_size:
            raise ValueError(
                f"drafter is an instance for {self.drafter.vocab_size} tokens, and this pair has"
                f" {vocab_size}"
            )
        return self.drafter
