"""The batch equation, in one place: `global = micro_batch * micro_batches * dp` (samples)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Batch:
    """A consistent batch. Build it with `solve`; counts are samples, `seq_len` is tokens a sample."""

    global_batch: int
    micro_batch: int
    micro_batches: int  # a step, on each replica
    seq_len: int

    @property
    def tokens(self) -> int:
        """Tokens a step over all replicas."""
        return self.global_batch * self.seq_len

    @property
    def micro_tokens(self) -> int:
        """Tokens of one micro-batch on one replica."""
        return self.micro_batch * self.seq_len


def holds(global_batch: int, micro_batch: int, micro_batches: int, dp: int) -> bool:
    """Does the equation hold?"""
    return micro_batch * micro_batches * dp == global_batch


def equation(global_batch: int | None, micro_batch: int | None, micro_batches: int | None, dp: int | None) -> str:
    """The full equation with its numbers, as people should see it."""
    known = [global_batch, micro_batch, micro_batches, dp]
    total, micro, count, replicas = ("?" if value is None else str(value) for value in known)
    return f"global {total} = micro_batch {micro} · micro_batches {count} · dp {replicas}"


def micro_batches_for(global_batch: int, micro_batch: int, dp: int) -> int | None:
    """Micro-batches a step, or None when `micro_batch * dp` does not divide the global batch."""
    whole, rest = divmod(global_batch, micro_batch * dp)
    return whole if rest == 0 and whole > 0 else None


def nearest_global(global_batch: int, micro_batch: int, dp: int) -> tuple[int, int]:
    """The legal global batches next below (at least one micro-batch) and above, for this micro-batch and dp."""
    step = micro_batch * dp
    below = max(step, global_batch // step * step)
    above = below if global_batch == below else below + step if global_batch > below else below
    return below, above


def divisors(n: int) -> tuple[int, ...]:
    """All divisors of n, ascending."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))


def micro_batch_choices(global_batch: int, dp: int) -> tuple[int, ...]:
    """Every micro-batch that satisfies the equation for `dp` replicas, ascending; empty when dp does not divide."""
    return divisors(global_batch // dp) if global_batch % dp == 0 else ()


def exact_nodes(global_batch: int, micro_batch: int, replicas_a_node: int) -> tuple[int, ...]:
    """Every number of nodes on which the equation holds for this global batch and micro-batch, ascending; empty when
    there is none. More nodes mean proportionally fewer micro-batches."""
    whole, rest = divmod(global_batch, micro_batch * replicas_a_node)
    return divisors(whole) if whole and not rest else ()


def solve(global_batch: int, seq_len: int, dp: int, micro_batch: int) -> Batch | None:
    """The batch with that micro-batch, or None when the equation has no whole solution."""
    count = micro_batches_for(global_batch, micro_batch, dp)
    return None if count is None else Batch(global_batch, micro_batch, count, seq_len)
