import pytest

from infra.pool.core.errors import BadRequirement, BadTopology
from infra.pool.core.requirements import (
    Specs,
    named_topology,
    parse_requirement,
    parse_topology,
    same_model,
)

H100 = Specs(8, "NVIDIA H100 80GB HBM3", 80_000, 192, 600_000, 4_000)
H200 = Specs(4, "NVIDIA H200", 141_000, 96, 600_000, 4_000)
RTX = Specs(1, "NVIDIA GeForce RTX 4090", 24_000, 16, 64_000, 500)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("", [True, True, True]),
        ("gpu:count=8", [True, False, False]),
        ("gpu:model=h100", [True, False, False]),
        ("gpu:model=h100, h200", [True, True, False]),
        ("gpu:memory_mb=80000", [True, True, False]),
        ("gpu:memory_mb_min=100000;gpu:memory_mb_max=150000", [False, True, False]),
        ("gpu:total_memory_min=640000", [True, False, False]),
        ("gpu:total_memory_max=600000", [False, True, True]),
        ("cpu:cores=96; ram_mb=500000 ;storage_gb=2000;", [True, True, False]),
        (
            "gpu:count=8;gpu:model=h100;gpu:memory_mb_min=79000;gpu:count=4;gpu:model=h200;"
            "ram_mb=500000;storage_gb=2000",
            [True, True, False],
        ),
        ("gpu:model=rtx4090", [False, False, True]),
    ],
)
def test_requirement(text, met):
    requirement = parse_requirement(text)
    assert [requirement.met_by(specs) for specs in (H100, H200, RTX)] == met


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("gpu:count", "gpu:count"),
        ("gpu:count=eight", "eight"),
        ("gpu:cuont=8", "gpu:cuont"),
        ("disk=1", "disk"),
        ("gpu:count=-1", "-1"),
        ("gpu:memory_mb=1;gpu:memory_mb_min=2", "gpu:memory_mb_min"),
        ("gpu:model=,", "gpu:model"),
        ("ram_mb=" + "9" * 3000, "characters"),
    ],
)
def test_bad_requirement_is_named(text, named):
    with pytest.raises(BadRequirement, match=named):
        parse_requirement(text)


@pytest.mark.parametrize(
    ("wanted", "have", "same"),
    [
        ("h100", "NVIDIA GH100 480GB", False),
        ("h100", "H200 100GB", False),
        ("a10", "NVIDIA A100", False),
        ("a", "NVIDIA A100", True),
        ("RTX_3090", "nvidia geforce rtx 3090", True),
    ],
)
def test_models_match_by_words(wanted, have, same):
    assert same_model(wanted, have) is same


def test_topology_names():
    pair = parse_topology("2x640GB", {})
    assert (pair.min_size, pair.max_size) == (2, 2)
    assert pair.requirement.met_by(H100) and not pair.requirement.met_by(H200)
    assert not parse_topology("1x1128GB", {}).requirement.met_by(H100)
    assert parse_topology("1x564GB", {}).requirement.met_by(H200)
    own = named_topology("2x640GB", 1, 3, "gpu:model=h200")
    assert parse_topology("2x640GB", {"2x640GB": own}) is own


@pytest.mark.parametrize("name", ["", "0x640GB", "2x640", "2x0GB", "65x24GB", "big", "2x640GB\n"])
def test_bad_topology(name):
    with pytest.raises(BadTopology, match="topology"):
        parse_topology(name, {})


@pytest.mark.parametrize("sizes", [(0, 1), (2, 1), (1, 65)])
def test_bad_sizes(sizes):
    with pytest.raises(BadTopology, match="sizes"):
        named_topology("x", *sizes, "")
