"""The ids of stages are those that the original's own library gives."""

import pytest

from infra.pool.agent.p2p import p2p_id


@pytest.mark.parametrize(
    ("seed", "expected"),
    [  # Node.with_seed(num_streams=1, seed=seed).node_id() of prime-iroh 0.3.1
        (0, "ee1aa49a4459dfe813a3cf6eb882041230c7b2558469de81f87c9bf23bf10a03"),
        (1, "ff87a0b0a3c7c0ce827e9cada5ff79e75a44a0633bfcb5b50f99307ddb26b337"),
        (1848, "08feb153aabe62232e2d5457977ea12cbb3e801015ea0ad83c9c44b60aca6edf"),
        (2**64 - 1, "d57a84a00dde99ab24672f1e0cf28144522f81fcab4a307ac63e5e474edfad1a"),
    ],
)
def test_a_seed_gives_the_id_of_the_originals_stage(seed, expected):
    assert p2p_id(seed) == expected
