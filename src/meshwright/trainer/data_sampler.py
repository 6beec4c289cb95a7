"""Which tokens a step trains on: a global order that the seed and the epoch alone decide.

A step reads the next `global_batch` places of that order, so the place in the data is one number, the samples read so
far; any layout, any restart and any number of replicas reads the same global batches.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.basics.errors import Complaint, InputError, bad_input
from meshwright.files.plan import Plan
from meshwright.files.setup import Pack
from meshwright.trainer.data import TokenFile
from meshwright.trainer.data_balance import balanced_order


@dataclass(frozen=True, slots=True)
class Reading:
    """How a run reads its tokens.

    `pack`: "stream" cuts windows of `seq_len` from the documents joined together, and attention looks across them;
    "documents" cuts the same windows but lets no token see, nor be trained to follow, another document; "pad" starts
    each document in a sample of its own (a long one goes on in further samples) and trains on no padding.
    """

    global_batch: int
    seq_len: int
    seed: int
    pack: Pack = "stream"
    replicas: int = 1
    micro_batches: int = 1
    balance: bool = True


@dataclass(frozen=True, slots=True)
class Batch:
    """One global batch. `samples` [G, S + 1]: inputs are `[:, :-1]`, targets `[:, 1:]`, below 0: not trained on.

    `positions` [G, S + 1]: place of each token in its document, None: attention is causal and nothing else. A target
    at place 0 begins another document than its input and is not trained on. Of each replica: `tokens` it trains on
    and `squares`, the sum of its documents' squared lengths; None where all replicas have the same.
    """

    samples: NDArray[np.int64]
    positions: NDArray[np.int64] | None = None
    tokens: tuple[int, ...] | None = None
    squares: tuple[int, ...] | None = None


def reading_of(plan: Plan) -> Reading:
    """How a plan's run reads."""
    batch, data, layout = plan.batch, plan.setup.data, plan.layout
    return Reading(
        batch.global_batch, batch.seq_len, plan.setup.proposal.training.seed, data.pack, layout.dp,
        batch.micro_batches, data.balance,
    )  # fmt: skip


class Sampler:
    """Reads global batches from a token file.

    Raises InputError when a step cannot be filled without reading a sample twice, or when the boundaries of documents
    are needed and not known.
    """

    def __init__(self, file: TokenFile, reading: Reading) -> None:
        self.file, self.reading = file, reading
        if reading.pack != "stream" and file.documents is None:
            raise bad_input("needs the boundaries of documents, which these tokens do not have", field="data.pack",
                            value=reading.pack, legal="stream")  # fmt: skip
        self._first_of = _samples_before(file, reading.seq_len) if reading.pack == "pad" else None
        have = window_count(file, reading.seq_len) if self._first_of is None else int(self._first_of[-1])
        self.count: int = have  # samples an epoch
        if self.count < reading.global_batch:
            windows = self._first_of is None
            need = f"{reading.global_batch * reading.seq_len + 1}" if windows else "longer documents, or more of them"
            raise bad_input(
                f"holds {len(file.tokens)} tokens, {self.count} {'windows' if windows else 'samples'} of "
                f"{reading.seq_len}; a step of {reading.global_batch} samples needs {need}", field="data",
                legal="more text, a shorter batch.seq_len or a smaller batch.global",
            )  # fmt: skip

    def batch(self, step: int) -> Batch:
        """The global batch of a step (counted from 0): each sample once an epoch, in an order of the epoch's own.

        Samples of unequal length are dealt out by work when the reading says so: to which replica and micro-batch a
        sample goes depends on the layout, which samples the batch holds does not.
        """
        reading = self.reading
        places = np.arange(step * reading.global_batch, (step + 1) * reading.global_batch)
        chosen = np.array([shuffled(int(p) % self.count, self.count, (reading.seed, int(p) // self.count))
                           for p in places], np.int64)  # fmt: skip
        if reading.pack == "stream":
            rows = chosen[:, None] * reading.seq_len + np.arange(reading.seq_len + 1)
            return Batch(self.file.tokens[rows].astype(np.int64))
        samples, positions = self._padded(chosen) if reading.pack == "pad" else self._windows(chosen)
        trained = ((samples[:, 1:] >= 0) & (positions[:, 1:] > 0)).sum(1)
        # The squared length of a document is the sum of 2 p + 1 over the places p of its tokens.
        squares = ((2 * positions + 1)[:, :-1] * (samples[:, :-1] >= 0)).sum(1)
        if reading.balance:
            order = balanced_order(squares, reading.replicas, reading.micro_batches)
            samples, positions, trained, squares = samples[order], positions[order], trained[order], squares[order]
        figures = (tuple(part.reshape(reading.replicas, -1).sum(1).tolist()) for part in (trained, squares))
        return Batch(samples, positions if reading.pack == "documents" else None, *figures)

    def _windows(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Windows and the place of each token in its document, or in what the window holds of it."""
        assert self.file.documents is not None
        length = self.reading.seq_len + 1
        begins = chosen * self.reading.seq_len
        first = np.searchsorted(self.file.documents, begins)
        last = np.searchsorted(self.file.documents, begins + length)
        heads = np.zeros((len(chosen), length), np.int64)  # where the document of a token begins in the window
        for row, begin in enumerate(begins):
            inside = self.file.documents[first[row] : last[row]] - begin
            heads[row, inside] = inside
        positions = np.arange(length) - np.maximum.accumulate(heads, axis=1)
        return self.file.tokens[begins[:, None] + np.arange(length)].astype(np.int64), positions

    def _padded(self, chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """One document, or the next stretch of a long one, a row; -1 behind its end."""
        assert self.file.documents is not None
        assert self._first_of is not None
        length, bounds = self.reading.seq_len + 1, self.file.documents
        document = np.searchsorted(self._first_of, chosen, side="right") - 1
        begins = bounds[document] + (chosen - self._first_of[document]) * self.reading.seq_len
        rows = begins[:, None] + np.arange(length)
        inside = rows < bounds[document + 1][:, None]
        samples = self.file.tokens[np.minimum(rows, len(self.file.tokens) - 1)].astype(np.int64)
        return np.where(inside, samples, -1), np.broadcast_to(np.arange(length), rows.shape)


def window_count(token_file: TokenFile, seq_len: int) -> int:
    """Windows of `seq_len` inputs; consecutive ones share a token, so that each token is a target once an epoch."""
    return max(0, (len(token_file.tokens) - 1) // seq_len)


def check_readable(file: TokenFile, plan: Plan) -> None:
    """Raise InputError unless the plan's run can read these tokens and its model knows every one of them."""
    found: list[Complaint] = []
    vocab = plan.setup.proposal.arch.vocab
    if file.vocab > vocab:
        found.append(Complaint("model.vocab", str(vocab), f"the data has token ids up to {file.vocab - 1}",
                               f"at least {file.vocab}"))  # fmt: skip
    try:
        Sampler(file, reading_of(plan))
    except InputError as error:
        found += error.complaints
    if found:
        raise InputError(tuple(found))


def samples(token_file: TokenFile, step: int, global_batch: int, seq_len: int, seed: int) -> NDArray[np.int64]:
    """Token ids [global_batch, seq_len + 1] of one step of a stream; see `Sampler.batch`."""
    return Sampler(token_file, Reading(global_batch, seq_len, seed)).batch(step).samples


def shuffled(index: int, count: int, key: tuple[int, int]) -> int:
    """Where `index` goes in a permutation of `range(count)` chosen by `key`.

    A Feistel network with cycle walking (Black and Rogaway 2002): no table, so a rank needs neither memory nor time
    for the order of a billion windows, and the order outlives versions of NumPy.
    """
    half = max(1, (max(count - 1, 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for turn in range(4):
            digest = hashlib.blake2b(repr((key, turn, right)).encode(), digest_size=8).digest()
            left, right = right, left ^ (int.from_bytes(digest, "little") & mask)
        index = left << half | right
        if index < count:
            return index


def _samples_before(file: TokenFile, seq_len: int) -> NDArray[np.int64]:
    """Padded samples before each document, and of all together: a document's tokens but the first are targets once."""
    assert file.documents is not None
    targets = np.maximum(np.diff(file.documents) - 1, 0)
    return np.concatenate(([0], np.cumsum(-(-targets // seq_len)))).astype(np.int64)
