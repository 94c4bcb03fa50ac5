import pytest
import torch

from toploc import ProofPoly
from toploc.C.csrc import ndd, poly, utils
from toploc.errors import ToplocError


def test_interpolation_and_evaluation():
    x, y = [5, 70000, 9], [1, 2, 65500]
    coefficients = ndd.compute_newton_coefficients(x, y)
    assert ndd.evaluate_polynomials(coefficients, x) == [1, 2, 3]
    assert ndd.evaluate_polynomial(coefficients, 5) == 1
    assert ndd.evaluate_polynomial([1, 2, 3, 4], 42) == ProofPoly([1, 2, 3, 4], 65497)(42)


@pytest.mark.parametrize(("x", "y"), [([], []), ([1], [1, 2]), ([1, 65498], [1, 2])])
def test_points_that_fit_no_polynomial(x, y):
    with pytest.raises(ToplocError):
        ndd.compute_newton_coefficients(x, y)


def test_parts_of_floats():
    values = [1.0, -1.5, 0.0, 3.140625]
    exponents, mantissas = utils.get_fp_parts(torch.tensor(values, dtype=torch.bfloat16))
    assert exponents == [127, 127, 0, 128]
    assert mantissas == [0, 64, 0, 0x49]
    exponents, mantissas = utils.get_fp_parts(torch.tensor(values), 4)
    assert exponents == [127, 127, 0, 128]
    assert mantissas == [0, 1 << 22, 0, 0x49 << 16]


def test_module_paths():
    assert poly.ProofPoly is ProofPoly
