import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from toploc import select
from toploc.select import leading, top_k


@pytest.fixture(params=["compiled", "torch"], autouse=True, scope="module")
def way(request):
    """Every test runs with the operations that other devices use as well."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(select, "_reaching_on_cpu", select._reaching)
        yield


def expected(keys: np.ndarray, k: int) -> list[list[int]]:
    return [sorted(range(len(row)), key=lambda i: (-row[i], i))[:k] for row in keys.tolist()]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 700), st.integers(1, 60), st.integers(0, 2**31))
def test_largest_magnitudes_then_lowest_index(rows, n, k, seed):
    k = min(k, n)
    random = np.random.default_rng(seed)
    bits = random.integers(-(2**15), 2**15, (rows, n)) // 4096 * random.choice([1, 4096])
    bits = bits.astype(np.int16)
    assert top_k(torch.from_numpy(bits), k).tolist() == expected(bits & 0x7FFF, k)


@pytest.mark.parametrize(
    ("n", "k"), [(49152, 20), (30001, 200), (5000, 128), (300, 128), (300, 300), (210, 2), (1, 1)]
)
def test_largest_numbers_then_lowest_index(n, k):
    random = np.random.default_rng(n + k)
    values = (random.standard_normal((3, n)) * 8).round(1).astype(np.float32)
    values[:, ::7] = -np.inf
    values[:, 3:4] = -0.0
    assert top_k(torch.from_numpy(values), k).tolist() == expected(values, k)


@pytest.mark.parametrize("k", [3, 60])
def test_leading_is_complete_down_to_its_last_value(k):
    random = np.random.default_rng(1)
    values = torch.from_numpy(random.integers(0, 50, (4, 2000)).astype(np.float32))
    columns, counts = leading(values, k)
    for row, found, count in zip(values, columns, counts, strict=True):
        assert count >= k
        last = row[found[count - 1]]
        assert set(found[:count].tolist()) >= set(torch.nonzero(row > last)[:, 0].tolist())
        assert (row == last).sum() == (row[found[:count]] == last).sum()


def test_channels_that_are_large_in_every_token():
    random = np.random.default_rng(2)
    values = random.integers(0, 100, (2, 32, 576)).astype(np.int16)
    values[:, :, [5, 70, 71, 300]] += random.integers(5000, 20000, (2, 32, 4)).astype(np.int16)
    values[1] |= -(2**15)
    flat = values.reshape(2, -1)
    assert top_k(torch.from_numpy(flat), 128).tolist() == expected(flat & 0x7FFF, 128)


@pytest.mark.parametrize("dtype", [torch.int16, torch.float32])
def test_all_entries_equal(dtype):
    values = torch.full((2, 3000), 7).to(dtype)
    assert top_k(values, 5).tolist() == [[0, 1, 2, 3, 4]] * 2
    columns, counts = leading(values, 5)
    assert counts.tolist() == [3000, 3000] and columns[0].tolist() == list(range(3000))
