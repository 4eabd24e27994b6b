"""What a table holds, in a few bytes: the number of rows, and a hash over all values that ignores their order."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import msgspec

from app.store.postgresql_copy.coercion import Values

_BYTES: Final = 16
_MODULUS: Final = 1 << (8 * _BYTES)


@dataclass(slots=True)
class Checksum:
    """Grows row by row; two are equal when the same rows were added, in any order."""

    rows: int = 0
    total: int = 0

    def add(self, values: Values) -> None:
        """Add a row. A sum and not XOR, because two equal rows must not cancel each other out."""
        hashed = blake2b(msgspec.msgpack.encode(values), digest_size=_BYTES).digest()
        self.rows += 1
        self.total = (self.total + int.from_bytes(hashed)) % _MODULUS

    @property
    def text(self) -> str:
        """The hash in hexadecimal, for people to compare."""
        return f"{self.total:0{2 * _BYTES}x}"
