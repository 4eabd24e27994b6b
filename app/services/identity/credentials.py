"""API keys as text and as hashes: mint, parse, verify. Only this module uses argon2.

A key is `cmem_<public id>_<secret>`, base62. The secret is 256 random bits, followed by a checksum over everything
before it, so that typos are detected without a look-up.
"""

import hmac
import secrets
import string
import threading
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

PREFIX: Final = "cmem_"
_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_PUBLIC_LENGTH: Final = 12
_SECRET_LENGTH: Final = 43  # 62 ** 43 > 2 ** 256
_CHECKSUM_LENGTH: Final = 6  # 62 ** 6 > 2 ** 32
_MAX_VERIFIED_KEYS: Final = 10_000

# 19 MiB, two passes, one lane: OWASP's minimum, ample for a random secret, and a fifth of the library's default cost.
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


@dataclass(frozen=True, slots=True)
class PresentedKey:
    """A well-formed key with a valid checksum; not authenticated yet."""

    public_id: str
    secret: str


def mint() -> PresentedKey:
    """Return a new random key."""
    public_id = _random(_PUBLIC_LENGTH)
    body = _random(_SECRET_LENGTH)
    return PresentedKey(public_id, body + checksum(public_id + body))


def format_key(key: PresentedKey) -> str:
    """Return the full text of a key, as handed to its owner."""
    return f"{PREFIX}{key.public_id}_{key.secret}"


def prefix_of(public_id: str) -> str:
    """Return the part of a key that is not secret."""
    return PREFIX + public_id


def parse(text: str) -> PresentedKey | None:
    """Return the key in a text, or None when it is malformed or mistyped. Needs no look-up and no hashing."""
    parts = text.split("_")
    if len(parts) != 3 or f"{parts[0]}_" != PREFIX:
        return None
    public_id, secret = parts[1], parts[2]
    if len(public_id) != _PUBLIC_LENGTH or len(secret) != _SECRET_LENGTH + _CHECKSUM_LENGTH:
        return None
    body, given_checksum = secret[:_SECRET_LENGTH], secret[_SECRET_LENGTH:]
    if not text.isascii() or not hmac.compare_digest(checksum(public_id + body), given_checksum):
        return None
    return PresentedKey(public_id, secret)


def checksum(text: str) -> str:
    """Return the last six characters of a key: CRC-32 of the others except the prefix, in base62."""
    number = zlib.crc32(text.encode())
    digits = []
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def hash_secret(secret: str) -> str:
    """Return the argon2id hash to store; takes about 25 ms of CPU."""
    return _HASHER.hash(secret)


def needs_rehash(secret_hash: str) -> bool:
    """Return whether a hash was made with other parameters than the current ones."""
    return _HASHER.check_needs_rehash(secret_hash)


class Verifier:
    """Verifies presented keys: with argon2 once per key and process, with a keyed digest from then on."""

    def __init__(self) -> None:
        """Start with an empty cache; the key of the digests exists only in this process."""
        self._digest_key = secrets.token_bytes(32)
        self._verified: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def verify(self, key: PresentedKey, secret_hash: str) -> bool:
        """Return whether the key's secret matches `secret_hash`."""
        proof = self._proof(key, secret_hash)
        if self._is_cached(key.public_id, proof):
            return True
        if not _matches(secret_hash, key.secret):
            return False
        self._cache(key.public_id, proof)
        return True

    def has_verified(self, key: PresentedKey, secret_hash: str) -> bool:
        """Return whether this process has verified this key before; takes microseconds."""
        return self._is_cached(key.public_id, self._proof(key, secret_hash))

    def _proof(self, key: PresentedKey, secret_hash: str) -> tuple[str, bytes]:
        return secret_hash, hmac.digest(self._digest_key, key.secret.encode(), "sha256")

    def _is_cached(self, public_id: str, proof: tuple[str, bytes]) -> bool:
        known = self._verified.get(public_id)
        return known is not None and known[0] == proof[0] and hmac.compare_digest(known[1], proof[1])

    def _cache(self, public_id: str, proof: tuple[str, bytes]) -> None:
        with self._lock:
            self._verified[public_id] = proof
            while len(self._verified) > _MAX_VERIFIED_KEYS:
                self._verified.popitem(last=False)


def _matches(secret_hash: str, secret: str) -> bool:
    try:
        _HASHER.verify(secret_hash, secret)
    except (Argon2Error, InvalidHashError):
        return False
    return True


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
