"""Messages between stages that hold memory no longer than they are under way.

PyTorch's stages make a receive buffer for every micro-batch of a step and keep every message sent until its end, so
that memory grows with the number of micro-batches: by 4 hidden states each on a middle stage. Here a buffer is made
when its message is due and dropped once the micro-batch has used it, and a sent tensor is let go as soon as something
received proves that it has arrived.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from torch.distributed import P2POp, Work
from torch.distributed.pipelining import PipelineStage

from meshwright.layout.schedules import Order
from meshwright.trainer.torch_versions import empty_like_meta, start

Proofs = Mapping[tuple[int, int], Sequence[int]]
"""By (stage, micro-batch of a forward): gradients' micro-batches which that activation proves to have arrived."""


def proofs(orders: Sequence[Order]) -> Proofs:
    """What a stage learns from an activation: the rank before had every gradient that it used before sending it.

    A rank waits for a gradient before its backward; the first forward of the same stage after that backward proves
    the gradient's arrival.
    """
    found: dict[tuple[int, int], Sequence[int]] = {}
    for order in orders:
        arrived: dict[int, list[int]] = {}
        for stage, kind, micro_batch in order:
            if kind in ("B", "I"):
                arrived.setdefault(stage, []).append(micro_batch)
            elif kind == "F" and stage in arrived:
                found[stage + 1, micro_batch] = arrived.pop(stage)
    return found


class FrugalStage(PipelineStage):
    """A stage whose messages are in memory while they are under way or in use, and no longer.

    `proofs` says which sent gradients an activation proves to have arrived. That a sent activation has arrived is
    known when its gradient comes back.
    """

    proofs: Proofs

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.proofs = {}
        self._activations: dict[int, list[Work]] = {}  # under way, by micro-batch
        self._gradients: dict[int, list[Work]] = {}

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        super()._setup_forward_recv_info(1, has_backward)
        self.args_recv_info = _without_buffers(self.args_recv_info[0], num_microbatches)

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        super()._setup_backward_recv_info(1)
        self.chunks = num_microbatches
        self.grad_recv_info = _without_buffers(self.grad_recv_info[0], num_microbatches)

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        self._make_buffers(self.args_recv_info[fwd_chunk_id])
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        self._make_buffers(self.grad_recv_info[bwd_chunk_id])
        return super().get_bwd_recv_ops(bwd_chunk_id)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        self._activations[fwd_chunk_id] = start(super().get_fwd_send_ops(fwd_chunk_id))
        return []  # they are on their way: the runtime has nothing to send, and nothing to keep

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        self._gradients[bwd_chunk_id] = start(super().get_bwd_send_ops(bwd_chunk_id))
        return []

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        for arrived in self.proofs.get((self.stage_index, fwd_chunk_id), ()):
            _finish(self._gradients.pop(arrived, []))
        out = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        _drop_buffers(self.args_recv_info[fwd_chunk_id])
        return out

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        _finish(self._activations.pop(bwd_chunk_id, []))
        super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)
        _drop_buffers(self.grad_recv_info[bwd_chunk_id])
        if loss is not None:
            loss.detach_()  # the runtime keeps it for the caller, and with its graph the received activation

    def settle(self) -> None:
        """Wait, at the end of a step, until all that was sent has arrived."""
        for under_way in (self._activations, self._gradients):
            for works in under_way.values():
                _finish(works)
            under_way.clear()

    def _make_buffers(self, infos: tuple[Any, ...]) -> None:
        for info in infos:
            if not info.is_root_arg and info.buffer is None and info.tensor_meta is not None:
                info.buffer = empty_like_meta(info.tensor_meta, self.device)


def _without_buffers(infos: tuple[Any, ...], micro_batches: int) -> dict[int, tuple[Any, ...]]:
    _drop_buffers(infos)
    return {micro_batch: tuple(copy(info) for info in infos) for micro_batch in range(micro_batches)}


def _drop_buffers(infos: tuple[Any, ...]) -> None:
    """What still needs a received tensor (the graph until its backward) refers to it itself."""
    for info in infos:
        info.buffer = None


def _finish(works: list[Work]) -> None:
    for work in works:
        work.wait()
