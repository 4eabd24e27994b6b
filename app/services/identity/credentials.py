"""API keys as text and as hashes: mint, parse, verify. Argon2 stays in here.

A key is `cmem_<public id>_<secret>`, base62. The secret is 256 random bits and a checksum over everything before it, so
that a typing error is known without looking anything up.
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
_REMEMBERED: Final = 10_000

# 19 MiB, two passes, one lane: OWASP's minimum, ample for a random secret and a fifth of the library's default cost.
_HASHER: Final = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


@dataclass(frozen=True, slots=True)
class PresentedKey:
    """A well-formed key whose checksum holds. Whether it opens anything is another question."""

    public_id: str
    secret: str


def mint() -> PresentedKey:
    """Return a new random key."""
    public_id = _random(_PUBLIC_LENGTH)
    body = _random(_SECRET_LENGTH)
    return PresentedKey(public_id, body + checksum(public_id + body))


def text_of(key: PresentedKey) -> str:
    """Return the key as its owner keeps it."""
    return f"{PREFIX}{key.public_id}_{key.secret}"


def prefix_of(public_id: str) -> str:
    """Return the part of a key that may be shown."""
    return PREFIX + public_id


def parse(text: str) -> PresentedKey | None:
    """Return the key in a text, or None when it is malformed or mistyped. Costs no look-up and no hash."""
    parts = text.split("_")
    if len(parts) != 3 or f"{parts[0]}_" != PREFIX:
        return None
    public_id, secret = parts[1], parts[2]
    if len(public_id) != _PUBLIC_LENGTH or len(secret) != _SECRET_LENGTH + _CHECKSUM_LENGTH:
        return None
    body, ending = secret[:_SECRET_LENGTH], secret[_SECRET_LENGTH:]
    if not text.isascii() or not hmac.compare_digest(checksum(public_id + body), ending):
        return None
    return PresentedKey(public_id, secret)


def checksum(text: str) -> str:
    """Return the six characters that end a key: CRC-32 of all the others but the prefix, in base62."""
    number = zlib.crc32(text.encode())
    digits = []
    for _ in range(_CHECKSUM_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def hash_secret(secret: str) -> str:
    """Return the argon2id hash to keep; about 25 ms of CPU."""
    return _HASHER.hash(secret)


def is_outdated(secret_hash: str) -> bool:
    """Say whether a hash was made under other parameters than today's."""
    return _HASHER.check_needs_rehash(secret_hash)


class Verifier:
    """Checks presented keys: one argon2 check per key and process, a keyed digest afterwards."""

    def __init__(self) -> None:
        """Start with nothing remembered; the digests' key lives and dies with the process."""
        self._digest_key = secrets.token_bytes(32)
        self._proven: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def proves(self, key: PresentedKey, secret_hash: str) -> bool:
        """Say whether the key's secret is the one behind `secret_hash`."""
        proof = self._proof(key, secret_hash)
        if self._is_proven(key.public_id, proof):
            return True
        if not _matches(secret_hash, key.secret):
            return False
        self._remember(key.public_id, proof)
        return True

    def remembers(self, key: PresentedKey, secret_hash: str) -> bool:
        """Say whether this key was proven here before; costs microseconds."""
        return self._is_proven(key.public_id, self._proof(key, secret_hash))

    def _proof(self, key: PresentedKey, secret_hash: str) -> tuple[str, bytes]:
        return secret_hash, hmac.digest(self._digest_key, key.secret.encode(), "sha256")

    def _is_proven(self, public_id: str, proof: tuple[str, bytes]) -> bool:
        known = self._proven.get(public_id)
        return known is not None and known[0] == proof[0] and hmac.compare_digest(known[1], proof[1])

    def _remember(self, public_id: str, proof: tuple[str, bytes]) -> None:
        with self._lock:
            self._proven[public_id] = proof
            while len(self._proven) > _REMEMBERED:
                self._proven.popitem(last=False)


def _matches(secret_hash: str, secret: str) -> bool:
    try:
        _HASHER.verify(secret_hash, secret)
    except (Argon2Error, InvalidHashError):
        return False
    return True


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
