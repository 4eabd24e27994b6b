"""API keys as text and hashes."""

import pytest
from argon2 import PasswordHasher

from app.services.identity import credentials
from app.services.identity.credentials import PresentedKey, Verifier

pytestmark = pytest.mark.usefixtures("documented_key_hashes")

ALPHABET = set("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def other(character: str) -> str:
    return "x" if character != "x" else "y"


def test_minted_key_can_be_parsed():
    """The text contains the whole key."""
    key = credentials.mint()

    assert credentials.parse(credentials.format_key(key)) == key


def test_key_has_three_parts_in_base62():
    """`cmem_<public id>_<secret>`, so that a double click selects it and secret scanners recognise it."""
    scheme, public_id, secret = credentials.format_key(credentials.mint()).split("_")

    assert scheme == "cmem"
    assert set(public_id + secret) <= ALPHABET
    assert 62 ** (len(secret) - 6) > 2**256


def test_keys_are_unique():
    """Public ids and secrets are random."""
    keys = [credentials.mint() for _ in range(200)]

    assert len({key.public_id for key in keys}) == len({key.secret for key in keys}) == 200


def test_any_single_typo_is_detected():
    """The checksum covers the public id too: a typo costs no look-up."""
    text = credentials.format_key(credentials.mint())
    typos = [text[:index] + other(text[index]) + text[index + 1 :] for index in range(len(text))]

    assert [typo for typo in typos if credentials.parse(typo) is not None] == []


@pytest.mark.parametrize(
    "text", ["", "cmem_", "cmem__", "cmem_a_b", "cmem_a_b_c", "é" * 66, "cmem_" + "é" * 12, "_" * 67]
)
def test_malformed_key_parses_to_none(text: str):
    """It does not raise."""
    assert credentials.parse(text) is None


def test_hash_is_argon2id_with_the_documented_parameters():
    """19 MiB, two passes, one lane."""
    assert credentials.hash_secret("secret").startswith("$argon2id$v=19$m=19456,t=2,p=1$")


def test_verified_key_is_cached_and_a_wrong_secret_is_not():
    """After the first verification a digest replaces the slow check, for the right secret only."""
    key, verifier = credentials.mint(), Verifier()
    secret_hash = credentials.hash_secret(key.secret)
    assert not verifier.has_verified(key, secret_hash)

    assert verifier.verify(key, secret_hash)

    assert verifier.has_verified(key, secret_hash)
    assert not verifier.has_verified(PresentedKey(key.public_id, "wrong"), secret_hash)
    assert not verifier.verify(PresentedKey(key.public_id, "wrong"), secret_hash)


def test_cached_verification_does_not_outlive_its_hash():
    """A key verified against one hash is not verified against another."""
    key, verifier = credentials.mint(), Verifier()
    verifier.verify(key, credentials.hash_secret(key.secret))

    assert not verifier.has_verified(key, credentials.hash_secret("another"))


def test_corrupt_hash_verifies_nothing():
    """A hash that argon2 cannot read rejects the key without raising."""
    assert not Verifier().verify(credentials.mint(), "not a hash")


def test_hash_with_other_parameters_needs_a_rehash():
    """Hashes are renewed on use when the parameters change."""
    weaker = PasswordHasher(time_cost=1, memory_cost=8 * 1024, parallelism=1)

    assert credentials.needs_rehash(weaker.hash("secret"))
    assert not credentials.needs_rehash(credentials.hash_secret("secret"))
