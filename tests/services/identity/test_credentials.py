"""API keys as text and hashes."""

import pytest
from argon2 import PasswordHasher

from app.services.identity import credentials
from app.services.identity.credentials import PresentedKey, Verifier

ALPHABET = set("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def other(character: str) -> str:
    return "x" if character != "x" else "y"


def test_a_minted_key_is_read_back():
    """The text that its owner keeps holds the whole key."""
    key = credentials.mint()

    assert credentials.parse(credentials.text_of(key)) == key


def test_a_key_has_three_parts_in_base62():
    """`cmem_<public id>_<secret>`, so that a double click selects it and scanners know it."""
    scheme, public_id, secret = credentials.text_of(credentials.mint()).split("_")

    assert scheme == "cmem"
    assert set(public_id + secret) <= ALPHABET
    assert 62 ** (len(secret) - 6) > 2**256


def test_no_two_keys_are_alike():
    """Public ids and secrets are random."""
    keys = [credentials.mint() for _ in range(200)]

    assert len({key.public_id for key in keys}) == len({key.secret for key in keys}) == 200


def test_any_one_mistyped_character_is_noticed():
    """The checksum covers the public id too: a typing error costs no look-up."""
    text = credentials.text_of(credentials.mint())
    typos = [text[:place] + other(text[place]) + text[place + 1 :] for place in range(len(text))]

    assert [typo for typo in typos if credentials.parse(typo) is not None] == []


@pytest.mark.parametrize(
    "text", ["", "cmem_", "cmem__", "cmem_a_b", "cmem_a_b_c", "é" * 66, "cmem_" + "é" * 12, "_" * 67]
)
def test_what_is_no_key_is_refused_without_an_error(text: str):
    """Malformed text reads as no key at all."""
    assert credentials.parse(text) is None


def test_a_hash_is_argon2id_with_the_parameters_that_are_documented():
    """19 MiB, two passes, one lane."""
    assert credentials.hash_secret("secret").startswith("$argon2id$v=19$m=19456,t=2,p=1$")


def test_a_proven_key_is_remembered_and_a_wrong_secret_is_not():
    """After the first proof a digest stands in for the slow check, of the right secret only."""
    key, verifier = credentials.mint(), Verifier()
    secret_hash = credentials.hash_secret(key.secret)
    assert not verifier.remembers(key, secret_hash)

    assert verifier.proves(key, secret_hash)

    assert verifier.remembers(key, secret_hash)
    assert not verifier.remembers(PresentedKey(key.public_id, "wrong"), secret_hash)
    assert not verifier.proves(PresentedKey(key.public_id, "wrong"), secret_hash)


def test_a_proof_does_not_outlive_its_hash():
    """What was proven against one hash says nothing about another."""
    key, verifier = credentials.mint(), Verifier()
    verifier.proves(key, credentials.hash_secret(key.secret))

    assert not verifier.remembers(key, credentials.hash_secret("another"))


def test_a_damaged_hash_proves_nothing():
    """A hash that the library cannot read is a refusal and no error."""
    assert not Verifier().proves(credentials.mint(), "not a hash")


def test_a_hash_under_other_parameters_is_outdated():
    """Hashes are renewed on use when the parameters change."""
    weaker = PasswordHasher(time_cost=1, memory_cost=8 * 1024, parallelism=1)

    assert credentials.is_outdated(weaker.hash("secret"))
    assert not credentials.is_outdated(credentials.hash_secret("secret"))
