"""The time and new ids: the two sources of non-determinism that tests may need to control. A leaf."""

import os
import time


def now_ms() -> int:
    """Return the current time in epoch milliseconds, UTC."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """Return a new UUIDv7 (RFC 9562, section 5.7): lower case, ordered by creation millisecond."""
    random = int.from_bytes(os.urandom(10), "big")
    value = (now_ms() & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | (random >> 68 & 0xFFF) << 64
    value |= 0b10 << 62 | random & 0x3FFF_FFFF_FFFF_FFFF
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
