"""The Parquet files of specspecs open as traces."""

import datetime
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from naive_speculate import Trace
from naive_speculate.events.event import EventKind

NOON = datetime.datetime(2026, 11, 28, 12)
STEPS = [  # sequence, step, draft tokens, accepted, the target's own token
    ("a", 0, [5, 6, 7], 1, 9),
    ("b", 0, [4], 1, 3),
    ("a", 1, [2, 8, 1], 3, 11),
    ("a", 2, [], 0, 12),
]


def write(folder, steps=STEPS, run="r"):
    """Files with specspecs' columns and types (0.1.0, `hooks.py`)."""
    prompts = {"run_id": [run] * 2, "sequence_id": ["a", "b"], "prompt_token_ids": [[1, 2], [3]]}
    pq.write_table(pa.table(prompts), folder / "sequences-77-00000.parquet")
    names, numbers, drafts, accepted, emitted = map(list, zip(*steps, strict=True))
    columns = {
        "run_id": [run] * len(steps),
        "sequence_id": names,
        "step": pa.array(numbers, pa.int32()),
        "t": pa.array(
            [NOON + datetime.timedelta(seconds=n) for n in range(len(steps))], pa.timestamp("us")
        ),
        "draft_tokens": pa.array(drafts, pa.list_(pa.int64())),
        "acceptances": [
            [n < count for n in range(len(d))] for d, count in zip(drafts, accepted, strict=True)
        ],
        "k": pa.array([len(d) for d in drafts], pa.int16()),
        "acceptance_length": pa.array(accepted, pa.int16()),
        "emitted_token": pa.array(emitted, pa.int32()),
    }
    pq.write_table(pa.table(columns), folder / "drafts-77-00000.parquet", compression="zstd")
    return folder


def test_a_folder_and_its_files_open_as_one_trace(tmp_path):
    for path in (write(tmp_path), *tmp_path.glob("*.parquet")):
        trace = Trace.load(path)
        assert trace.row(0).token_ids == [5, 9, 2, 8, 1, 11, 12]
        assert trace.row(1).token_ids == [4, 3]
        assert [trace.row(row).started.prompt_token_ids for row in (0, 1)] == [[1, 2], [3]]
        kinds = [event.kind for event in trace.row(0) if event.step == 0]
        assert kinds == [
            *[EventKind.PROPOSED] * 3,
            *(EventKind.ACCEPTED, EventKind.REJECTED, EventKind.DISCARDED, EventKind.RESAMPLED),
            EventKind.STEP,
        ]
        metrics = trace.row(0).metrics
        assert (metrics.num_draft_tokens, metrics.num_accepted_draft_tokens) == (6, 4)
        assert metrics.alpha == pytest.approx(4 / 5)
        assert [event.time for event in trace if event.kind == EventKind.STEP] == [0, 2, 3, 1]


def test_it_is_saved_drawn_and_opened_like_any_other(tmp_path):
    trace = Trace.load(write(tmp_path))
    trace.save(tmp_path / "trace.jsonl")
    assert Trace.load(tmp_path / "trace.jsonl").events == trace.events
    assert "[5]" in trace.to_svg(0)


def test_what_is_no_trace_is_refused_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "drafts-1-0.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match="not a Parquet file"):
        Trace.load(tmp_path / "drafts-1-0.parquet")
    pq.write_table(pa.table({"run_id": ["r"]}), tmp_path / "drafts-1-0.parquet")
    with pytest.raises(ValueError, match="not a file of specspecs, it has no column 'sequence_id'"):
        Trace.load(tmp_path / "drafts-1-0.parquet")
    write(tmp_path, [("a", 4, [1], 2, 3)])
    (tmp_path / "drafts-1-0.parquet").unlink()
    with pytest.raises(ValueError, match="step 4 accepts 2 of 1 draft tokens"):
        Trace.load(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"need pyarrow: pip install '.\[parquet\]' in"):
        Trace.load(tmp_path)
