"""Logarithm, exponential and Gumbel noise made of IEEE basic operations only.

Library functions differ in the last bit between processors, vector widths and devices. Addition,
multiplication, division and rounding do not (eager torch does not fuse them), so what is built from
them here is equal bit for bit everywhere.
"""

import math

import torch
from torch import Tensor

MANTISSA = (1 << 52) - 1
_LOG_TERMS = 10
LOG_SERIES = tuple(1.0 / (2 * term + 1) for term in range(_LOG_TERMS, -1, -1))
_EXP2 = tuple(math.log(2.0) ** i / math.factorial(i) for i in range(7))
_LOG2_E = 1.0 / math.log(2.0)
LN2 = 0.6931471805599453
_SMALLEST_EXPONENT = -120.0
_ROUNDER = 1.5 * 2.0**23


def log64(x: Tensor) -> Tensor:
    """Natural logarithm of positive normal float64 values, to a few units in the last place."""
    bits = x.view(torch.int64)
    exponent = (bits >> 52) - 1023
    mantissa = ((bits & MANTISSA) | (1023 << 52)).view(torch.float64)
    # Into [1/sqrt 2, sqrt 2), so that x near 1 keeps its relative precision.
    upper = mantissa > math.sqrt(2.0)
    mantissa = torch.where(upper, mantissa * 0.5, mantissa)
    exponent = exponent + upper.to(torch.int64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    z = s * s
    series = torch.full_like(z, LOG_SERIES[0])
    for term in LOG_SERIES[1:]:
        series = series * z
        series = series + term
    return exponent.to(torch.float64) * LN2 + (s * 2.0) * series


def exp32(x: Tensor) -> Tensor:
    """Exponential of float32 values <= 0, relative error a few 1e-6; at least e**-83."""
    t = (x * _LOG2_E).clamp_(min=_SMALLEST_EXPONENT)
    # The sum has no bits left for fractions, so it rounds t, and its low bits are the integer.
    shifted = t + _ROUNDER
    t -= shifted - _ROUNDER
    series = torch.full_like(t, _EXP2[-1])
    for coefficient in _EXP2[-2::-1]:
        series *= t
        series += coefficient
    # Adding to the exponent bits multiplies by a power of two.
    bits = series.view(torch.int32)
    bits += shifted.view(torch.int32) << 23
    return series


def gumbel_of(words: Tensor) -> Tensor:
    """Standard Gumbel noise of words, float32: -log(-log(1 - v)), v = (word + 1/2) / 2**32."""
    complement = 1.0 - (words.to(torch.float64) + 0.5) * 2.0**-32
    exponential = -log64(complement)
    return (-log64(exponential)).to(torch.float32)
