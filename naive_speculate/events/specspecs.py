"""Reads the Parquet files of specspecs 0.1.0, a logger for any decoding loop (`hooks.py`,
`SEQ_SCHEMA` and `DRAFT_SCHEMA`): a folder of `sequences-….parquet` and `drafts-….parquet`.

A row of drafts is a step: its draft tokens, how many were accepted, and the token that the
target emitted after them. The files have neither texts nor probabilities, so a token's text is
its id in brackets.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

from naive_speculate.events.event import SCHEMA_VERSION, Event, EventKind

MAGIC = b"PAR1"  # what a Parquet file begins with
_COLUMNS = ("run_id", "sequence_id", "step", "draft_tokens", "acceptance_length", "emitted_token")


def is_specspecs(path: Path) -> bool:
    """Whether a path is a Parquet file, or a folder with Parquet files. Raises `OSError` if it
    cannot be read."""
    if path.is_dir():
        return any(path.glob("*.parquet"))
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_specspecs(path: Path) -> list[Event]:
    """The events of a run, one row of the batch for each sequence; `path` is the folder, or one of
    its files. Raises `ValueError` if pyarrow is missing, the files are not specspecs', they hold
    several runs, or figures contradict each other."""
    folder = path if path.is_dir() else path.parent
    files = sorted(folder.glob("drafts-*.parquet"))
    if path.is_file() and not path.name.startswith("sequences-"):
        files = [path]
    drafts = [row for file in files for row in _rows(file, _COLUMNS)]
    if not drafts:
        raise ValueError(f"trace {path}: it has no drafts of specspecs")
    runs = sorted({str(row["run_id"]) for row in drafts})
    if len(runs) > 1:
        raise ValueError(f"trace {path}: it holds {len(runs)} runs, {runs[0]!r:.40} and others")
    prompts = {
        row["sequence_id"]: list(row["prompt_token_ids"] or [])
        for file in sorted(folder.glob("sequences-*.parquet"))
        for row in _rows(file, ("run_id", "sequence_id", "prompt_token_ids"))
        if str(row["run_id"]) == runs[0]
    }
    steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in drafts:
        steps[row["sequence_id"]].append(row)
    began = min((row["t"] for row in drafts if row.get("t") is not None), default=None)
    events = []
    for number, (name, own) in enumerate(steps.items()):
        events += _of_sequence(path, number, prompts.get(name, []), own, began)
    return events


def _rows(file: Path, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(
            f"trace {file}: Parquet files need pyarrow: pip install '.[parquet]' in the repository"
        ) from None
    try:
        table = pyarrow.parquet.read_table(file)
    except pyarrow.ArrowException as error:
        raise ValueError(
            f"trace {file}: not a Parquet file ({str(error).splitlines()[0]})"
        ) from None
    if missing := [name for name in columns if name not in table.column_names]:
        raise ValueError(f"trace {file}: not a file of specspecs, it has no column {missing[0]!r}")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _of_sequence(
    path: Path, row: int, prompt: list[int], steps: list[dict[str, Any]], began: Any
) -> list[Event]:
    """The events of one sequence, whose steps are in their order."""
    steps = sorted(steps, key=lambda one: int(one["step"]))
    events = [
        Event(
            EventKind.STARTED,
            row=row,
            schema_version=SCHEMA_VERSION,
            prompt="".join(map(_text, prompt)),
            prompt_token_ids=prompt,
            prompt_texts=list(map(_text, prompt)),
            settings={"verify_strategy": "unknown", "drafter": "specspecs"},
        )
    ]
    position = 0
    for number, one in enumerate(steps):
        drafts, accepted = list(one["draft_tokens"] or []), int(one["acceptance_length"] or 0)
        if not 0 <= accepted <= len(drafts):
            raise ValueError(
                f"trace {path}: step {one['step']} accepts {accepted} of {len(drafts)} draft tokens"
            )
        time = (one["t"] - began).total_seconds() if began and one.get("t") else 0.0
        common: dict[str, Any] = {"row": row, "time": time, "step": number}
        verdicts = _verdicts(drafts, accepted, one["emitted_token"])
        proposed = [(EventKind.PROPOSED, index, token) for index, token in enumerate(drafts)]
        for kind, index, token in (*proposed, *verdicts):
            events.append(
                Event(
                    kind,
                    **common,
                    index=index,
                    position=position + index,
                    token_id=int(token),
                    token=_text(token),
                    text=_text(token),
                    reason="rejected" if kind == EventKind.DISCARDED else None,
                )
            )
        counts: dict[str, Any] = {"num_draft": len(drafts), "num_accepted": accepted}
        events.append(Event(EventKind.STEP, **common, **counts))
        position += accepted + (one["emitted_token"] is not None)
    events.append(Event(EventKind.FINISHED, row=row, time=events[-1].time))
    return events


def _verdicts(
    drafts: list[int], accepted: int, emitted: int | None
) -> list[tuple[EventKind, int, int]]:
    """What happened to each draft token, and the target's own token."""
    verdicts = [(EventKind.ACCEPTED, index, drafts[index]) for index in range(accepted)]
    for index in range(accepted, len(drafts)):
        kind = EventKind.REJECTED if index == accepted else EventKind.DISCARDED
        verdicts.append((kind, index, drafts[index]))
    if emitted is not None:
        kind = EventKind.BONUS if accepted == len(drafts) else EventKind.RESAMPLED
        verdicts.append((kind, accepted, emitted))
    return verdicts


def _text(token: int) -> str:
    return f"[{token}]"
