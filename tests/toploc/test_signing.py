import pickle

import pytest

from toploc.errors import MalformedKey
from toploc.signing import SigningKey, public_key, verify

# RFC 8032, section 7.1, test 3.
SECRET = bytes.fromhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
PUBLIC = "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"
MESSAGE = bytes.fromhex("af82")
SIGNATURE = bytes.fromhex(
    "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
    "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
)
ORDER = 2**252 + 27742317777372353535851937790883648493


def test_the_vector_of_rfc_8032():
    key = SigningKey(SECRET)
    assert key.node_id == PUBLIC
    assert key.sign(MESSAGE) == SIGNATURE
    assert verify(PUBLIC, MESSAGE, SIGNATURE)


@pytest.mark.parametrize(
    ("node_id", "message", "signature"),
    [
        (PUBLIC, MESSAGE + b"x", SIGNATURE),
        (PUBLIC, MESSAGE, SIGNATURE[:-1]),
        (PUBLIC, MESSAGE, SIGNATURE + b"\0"),
        (PUBLIC, MESSAGE, bytes(64)),
        (PUBLIC, MESSAGE, b""),
        (PUBLIC, MESSAGE, None),
        (PUBLIC, MESSAGE, SIGNATURE.hex()),
        (PUBLIC.upper(), MESSAGE, SIGNATURE),
        (PUBLIC + "\n", MESSAGE, SIGNATURE),
        ("", MESSAGE, SIGNATURE),
        (None, MESSAGE, SIGNATURE),
    ],
)
def test_what_is_not_this_signature_of_this_key_never_verifies(node_id, message, signature):
    assert not verify(node_id, message, signature)


def test_a_signature_has_one_form():
    """S and S + order give the same point; the second form would be another name for it."""
    s = int.from_bytes(SIGNATURE[32:], "little") + ORDER
    assert not verify(PUBLIC, MESSAGE, SIGNATURE[:32] + s.to_bytes(32, "little"))


@pytest.mark.parametrize("y", [0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 1])
@pytest.mark.parametrize("sign", [0, 1 << 255])
def test_keys_that_identify_nobody_are_refused(y, sign):
    raw = (y | sign).to_bytes(32, "little").hex()
    with pytest.raises(MalformedKey, match="no key that can identify"):
        public_key(raw)


def test_a_small_order_key_verifies_nothing_although_its_equation_holds():
    """With the neutral element as key, R = S = neutral would fit any message."""
    neutral = (1).to_bytes(32, "little")
    assert not verify(neutral.hex(), b"anything", neutral + bytes(32))


def test_keys_are_new_each_time_and_show_nothing():
    key = SigningKey.generate()
    assert key.node_id != SigningKey.generate().node_id
    assert SECRET.hex() not in repr(SigningKey(SECRET)) and PUBLIC in repr(SigningKey(SECRET))
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(key)
    with pytest.raises(MalformedKey, match="32 bytes, this one 31"):
        SigningKey(bytes(31))
