import pytest

from toploc import ProofPoly, prove
from toploc.errors import MalformedProof
from toploc.inspection import inspect_proofs


def test_honest_proofs_have_full_degree_and_no_problem(hidden):
    facts = inspect_proofs(prove(hidden))
    assert len(facts) == 3
    for one in facts:
        assert (one.modulus, one.degree, one.problems) == (65497, 127, ())
        assert one.zero_coefficients <= 1
    assert len(inspect_proofs(prove(hidden, topk=16), topk=16)) == 3
    assert inspect_proofs(b"") == []


@pytest.mark.parametrize(
    ("proof", "problem"),
    [
        (ProofPoly.null(128), "null proof"),
        (ProofPoly([7] * 128, 65498), "modulus is 65498"),
        (ProofPoly([7] * 128, 1), "proof_modulus: 1"),
        (ProofPoly([7] * 127 + [65497], 65497), "coefficient is 65497"),
        (ProofPoly([7] + [0] * 127, 65497), "trivial_degree: degree 0"),
        (ProofPoly([7] + [0] * 126 + [1], 65497), "trivial_zeros: 126"),
    ],
    ids=["null", "modulus", "tiny modulus", "coefficient", "constant", "sparse"],
)
def test_problems_are_named(proof, problem):
    (facts,) = inspect_proofs(proof.to_bytes())
    assert any(problem in text for text in facts.problems)


def test_a_part_of_a_proof_is_refused(hidden):
    with pytest.raises(MalformedProof, match="773 bytes"):
        inspect_proofs(prove(hidden)[:-1])
