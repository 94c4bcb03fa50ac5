"""Exponents and mantissas of floating point tensors."""

import torch
from torch import Tensor

from toploc.errors import UnprovableActivations


def get_fp_parts(tensor: Tensor, num_threads: int = 1) -> tuple[list[int], list[int]]:
    """Biased exponents and mantissas of a float32 or bfloat16 tensor; one thread is enough."""
    if tensor.dtype == torch.bfloat16:
        bits, mantissa = tensor.flatten().view(torch.int16), 7
    elif tensor.dtype == torch.float32:
        bits, mantissa = tensor.flatten().view(torch.int32), 23
    else:
        raise UnprovableActivations(f"{tensor.dtype} has no parts here; give float32 or bfloat16")
    wide = bits.to(torch.int64)
    return ((wide >> mantissa) & 0xFF).tolist(), (wide & ((1 << mantissa) - 1)).tolist()
