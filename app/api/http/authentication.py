"""From a request's headers to its caller: API keys, access tokens, local-dev mode. Slow hashes happen in here only.

A key or token costs one read of the key's row, in one hop to a reader. The first request of a key in this process also
costs one argon2 check, in threads of its own and under limits: whoever sends wrong secrets slows only himself.
"""

import asyncio
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from litestar.types import Scope

from app.api.http import counters, local_dev
from app.api.http.thread_pools import Workers, patient
from app.caller import Caller
from app.errors import RateLimited
from app.services.identity import credentials, keys, teams, tokens
from app.services.identity.credentials import PresentedKey, Verifier
from app.services.identity.keys import StoredKey
from app.services.identity.tokens import Claims, TokenSigner
from app.services.quotas import login_throttle, rate_limit
from app.services.quotas.login_throttle import LeakyBucket, LoginThrottle
from app.store.database import Database
from app.store.engines import rls_context

_BEARER: Final = re.compile(r"^Bearer +([^\s,]+)$", re.IGNORECASE)
_FAILURES_PER_MINUTE: Final = 20
_BUSY: Final = "Too many wrong credentials were sent; try again in a minute."

Credential = PresentedKey | Claims


class Refused(Exception):
    """The credential opens nothing; `key` is the one it named, when there is such a key."""

    def __init__(self, key: StoredKey | None = None) -> None:
        super().__init__()
        self.key = key


def _hashing_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2), thread_name_prefix="hash")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """Finds out who asks. `renewed_hashes` gathers {key id: (outdated, renewed)} until they are stored."""

    database: Database
    workers: Workers
    signing: TokenSigner
    lets_local_in: bool
    verifier: Verifier = field(default_factory=Verifier)
    hashing: ThreadPoolExecutor = field(default_factory=_hashing_threads)
    failures: LoginThrottle = field(
        default_factory=partial(LoginThrottle, max_failures_per_minute=_FAILURES_PER_MINUTE)
    )
    pace: LeakyBucket = field(default_factory=partial(LeakyBucket, per_second=50, burst=200, max_delay_seconds=2.0))
    renewed_hashes: dict[str, tuple[str, str]] = field(default_factory=dict)

    async def caller(self, scope: Scope) -> Caller:
        """Return who sends a request; raise Refused for any credential that does not open this server now."""
        request_id: str = scope["state"]["request_id"]
        credential = self._credential(scope)
        if credential is None:
            return await self._local(scope, request_id)
        stored = await self.workers.read(patient(partial(self._stored, credential)))
        caller = None if stored is None else keys.caller_of(stored, request_id=request_id)
        if stored is None or caller is None:
            raise Refused(stored)
        if isinstance(credential, PresentedKey):
            await self._require_proof(credential, stored, peer_of(scope))
            return caller
        narrowed = tokens.apply_claims(caller, credential)
        if narrowed is None:
            raise Refused(stored)
        return narrowed

    async def hash_secret(self, secret: str) -> str:
        """Return the hash to keep of a new secret, made where no request waits for it but this one."""
        return await asyncio.get_running_loop().run_in_executor(self.hashing, credentials.hash_secret, secret)

    def close(self) -> None:
        """End the hashing threads."""
        self.hashing.shutdown(cancel_futures=True)

    def _credential(self, scope: Scope) -> Credential | None:
        """Return what was presented; None when nothing was. Bearer wins, two of one kind are none."""
        bearers = [value for name, value in scope["headers"] if name == b"authorization"]
        if bearers:
            found = _BEARER.match(bearers[0].decode("latin-1")) if len(bearers) == 1 else None
            return self._well_formed(found.group(1) if found else "")
        given = [value for name, value in scope["headers"] if name == b"x-api-key"]
        if not given:
            return None
        key = credentials.parse(given[0].decode("latin-1").strip()) if len(given) == 1 else None
        if key is None:
            raise Refused
        return key

    def _well_formed(self, text: str) -> Credential:
        is_key = text.startswith(credentials.PREFIX)
        found = credentials.parse(text) if is_key else self.signing.decode(text)
        if found is None:
            raise Refused
        return found

    def _stored(self, credential: Credential) -> StoredKey | None:
        with rls_context.acting_for(None), self.database.read_one() as connection:  # whose key it is remains to be seen
            if isinstance(credential, PresentedKey):
                return keys.find(connection, credential.public_id)
            return keys.find_by_id(connection, credential.sub)

    async def _local(self, scope: Scope, request_id: str) -> Caller:
        if not self.lets_local_in or not local_dev.is_local(scope):
            raise Refused
        caller = await self.workers.read(patient(partial(self._default_owner, request_id)))
        if caller is None:
            raise Refused
        return caller

    def _default_owner(self, request_id: str) -> Caller | None:
        with rls_context.acting_for(None), self.database.read() as connection:
            return teams.local_dev_caller(connection, request_id=request_id)

    async def _require_proof(self, key: PresentedKey, stored: StoredKey, peer: str) -> None:
        if self.verifier.has_verified(key, stored.secret_hash):
            return
        names = (f"key {key.public_id}", f"peer {peer}")
        loop = asyncio.get_running_loop()
        proven = await loop.run_in_executor(self.hashing, self._check, key, stored, names)
        if proven is None:
            raise RateLimited(_BUSY, retry_after_seconds=rate_limit.seconds_left_in_minute())
        if not proven:
            raise Refused(stored)

    def _check(self, key: PresentedKey, stored: StoredKey, names: tuple[str, ...]) -> bool | None:
        """Check a secret slowly, unless too many were wrong lately; None says that it was not checked."""
        if not all(self.failures.allows(name) for name in names):
            return None
        counters.ARGON2_CHECKS.inc()
        if not self.verifier.verify(key, stored.secret_hash):
            for name in names:
                self.failures.count(name)
            return False
        if credentials.needs_rehash(stored.secret_hash):
            self.renewed_hashes[stored.id] = (stored.secret_hash, credentials.hash_secret(key.secret))
        return True


def peer_of(scope: Scope) -> str:
    """Return who the other end of the connection counts as; a trusted proxy has named it already."""
    return login_throttle.peer_of(scope["client"][0]) if scope["client"] else "unknown"
