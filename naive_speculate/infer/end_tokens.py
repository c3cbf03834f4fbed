"""End-of-sequence tokens, from a model's generation configuration or its configuration."""

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from numbers import Integral
from typing import Any

# fields of a composite model's configuration that hold its language model's
_INNER = "text_config", "decoder", "generator"
_log = logging.getLogger(__name__)


class HasEndTokens:
    """A model with a `name` and with `eos_token_ids`, of which there may be none."""

    @property
    def eos_token_id(self: Any) -> int:
        """The (first) end-of-sequence token; a `ValueError` if there is none."""
        if not self.eos_token_ids:
            raise ValueError(f"eos_token_id: the configuration of {self.name} has none")
        return int(self.eos_token_ids[0])


def end_tokens(generation_config: Any, config: Any, name: str) -> tuple[int, ...]:
    """The tokens at which transformers' `generate` ends.

    A generation configuration decides alone, even if it names no end token, as in `generate`
    (transformers 5.23). Without one, the outer configuration comes before the inner one, whose
    class may have a default. Both may be objects, or the content of their JSON file. Raises
    `ValueError` if they are not token ids.
    """
    of_config = _first([config, *(_value(config, key) for key in _INNER)])
    if generation_config is None:
        return _as_ids(of_config, name)
    ids = _as_ids(_value(generation_config, "eos_token_id"), name)
    if not ids and of_config is not None:
        _warn_once(name, str(of_config))
    return ids


@lru_cache
def _warn_once(name: str, ids: str) -> None:
    message = (
        "%s: its generation configuration has no end token, so none ends a text, as in"
        " transformers; its configuration: %s"
    )
    _log.warning(message, name, ids)


def _first(configs: Sequence[Any]) -> Any:
    each = (_value(config, "eos_token_id") for config in configs if config is not None)
    return next((ids for ids in each if ids is not None), None)


def _value(config: Any, key: str) -> Any:
    return config.get(key) if isinstance(config, Mapping) else getattr(config, key, None)


def _as_ids(value: Any, name: str) -> tuple[int, ...]:
    ids = () if value is None else value if isinstance(value, (list, tuple)) else (value,)
    for token in ids:
        whole = isinstance(token, Integral) or (isinstance(token, float) and token.is_integer())
        if not whole or isinstance(token, bool):
            raise ValueError(f"eos_token_id of {name} must be token ids, got {value!r:.80}")
    return tuple(dict.fromkeys(int(token) for token in ids))
