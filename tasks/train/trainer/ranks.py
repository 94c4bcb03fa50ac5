"""The processes that train together: one, or those that torchrun started.

Invariants: all ranks hold the same plan and meet in the same collective operations in the same
order; gradients are sums over ranks (the loss already has the step's divisor), reduced in float32.
What only sharded weights need is imported when they are sharded: it takes seconds.
"""

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore

from tasks.train.trainer.policy import Policy

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Ranks:
    """This process among `world`; `sharded` where weights are distributed tensors."""

    rank: int
    world: int
    device: torch.device
    sharded: bool

    @property
    def first(self) -> bool:
        """Whether this process writes what all share."""
        return self.rank == 0

    def total(self, tensor: Tensor) -> Tensor:
        """Sum over ranks."""
        return self._reduced(tensor, dist.ReduceOp.SUM)

    def highest(self, tensor: Tensor) -> Tensor:
        """Maximum over ranks."""
        return self._reduced(tensor, dist.ReduceOp.MAX)

    def first_says(self, value: bool) -> bool:
        """What the first rank says, at all ranks."""
        said = torch.tensor(float(self.first and value), device=self.device)
        return bool(self.total(said))

    def meet(self) -> None:
        """Wait until all ranks are here."""
        if self.world > 1:
            dist.barrier()

    def _reduced(self, tensor: Tensor, operation: Any) -> Tensor:
        if self.world > 1:
            dist.all_reduce(tensor, operation)
        return tensor


def join_ranks(dtype: str) -> Ranks:
    """Join the group that torchrun's environment names; alone where there is none.

    One process with float32 weights needs no group; with mixed precision it is a group of one, so
    that the precisions are those of many.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cpu")
    if cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    sharded = world > 1 or dtype != "float32"
    if sharded and not dist.is_initialized():
        backend = "nccl" if cuda else "gloo"
        if world > 1:
            dist.init_process_group(backend)
        else:
            dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    return Ranks(rank, world, device, sharded)


def place(policy: Policy, ranks: Ranks, dtype: str) -> None:
    """Put the policy on its device, sharded over the ranks layer by layer (FSDP2)."""
    if not ranks.sharded:
        policy.to(ranks.device)
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(ranks.device.type, (ranks.world,))
    precision = MixedPrecisionPolicy(param_dtype=DTYPES[dtype], reduce_dtype=torch.float32)
    for layer in policy.layers:
        fully_shard(layer, mesh=mesh, mp_policy=precision)
    # embedding, last norm and head are needed at both ends of each pass, so they stay whole in it
    fully_shard(policy, mesh=mesh, mp_policy=precision, reshard_after_forward=False)


def release(policy: Policy) -> None:
    """Give up what a pass without a backward pass has left gathered."""
    reshard = getattr(policy, "reshard", None)  # FSDP2 puts it on the module
    if reshard is not None:
        reshard()


def local(tensor: Any) -> Tensor:
    """The part of a tensor that this rank holds."""
    part: Tensor = tensor.to_local() if _is_sharded(tensor) else tensor
    return part


def whole(tensor: Any) -> Tensor:
    """The tensor with the parts of all ranks, which must all ask for it; without gradient."""
    full: Tensor = tensor.full_tensor() if _is_sharded(tensor) else tensor
    return full.detach()


def local_rows(tensor: Any) -> tuple[int, int]:
    """First and end of the rows that this rank holds."""
    if not _is_sharded(tensor):
        return 0, int(tensor.shape[0])
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    shape, offset = compute_local_shape_and_global_offset(
        tensor.shape, tensor.device_mesh, tensor.placements
    )
    return offset[0], offset[0] + shape[0]


def _is_sharded(tensor: Any) -> bool:
    return hasattr(tensor, "placements")
