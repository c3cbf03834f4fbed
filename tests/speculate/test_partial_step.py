"""A step that fails after its tokens were committed reports what it committed."""

import pytest
import torch

from naive_speculate import ModelPair, SamplingParams, SpeculativeDecoder
from naive_speculate.speculate.batch import Batch, PartialStepError
from naive_speculate.speculate.request import Request
from tests.speculate.toys import ToyModel


class LateFailure(Batch):
    """Fails once its caches and drafters have followed a step, as a lack of memory may."""

    def _commit(self, rows, records, features):
        super()._commit(rows, records, features)
        raise torch.OutOfMemoryError("no memory is left")


def test_rows_that_were_committed_are_reported_with_the_failure():
    decoder = SpeculativeDecoder(ModelPair(ToyModel(5, 1), ToyModel(5, 2)))
    run = decoder.prepare(Request([1, 2], SamplingParams(n=2, max_tokens=9, seed=1, ignore_eos=True)))
    batch = LateFailure(decoder.pair, decoder.new_batch().vocabulary)
    batch.admit(run.rows)
    with pytest.raises(PartialStepError, match="committed for 2 rows") as failed:
        batch.step(run.rows)
    assert set(failed.value.records) == set(run.rows)
    assert isinstance(failed.value.cause, torch.OutOfMemoryError)
    assert all(row.output_token_ids for row in run.rows)
