"""From the headers of a request to its caller: API keys, access tokens, local-dev mode.

A key or token costs one read of the key's row, in one hop to a reader thread. The first request with a key in this
process also costs one argon2 check. These slow checks run in threads of their own and are throttled, so a client that
sends wrong secrets slows down only itself.
"""

import asyncio
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from litestar.types import Scope
from prometheus_client import Counter

from app.api.http import local_dev
from app.api.http.thread_pools import ThreadPools, retrying
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
_THROTTLED: Final = "Too many failed authentication attempts. Try again in a minute."
_ARGON2_CHECKS: Final = Counter("cmem_argon2_checks", "Slow checks of a secret: one for each key and process.")

Credential = PresentedKey | Claims


class CredentialRejected(Exception):
    """The credential is not accepted; `key` is the one that it names, if that key exists."""

    def __init__(self, key: StoredKey | None = None) -> None:
        super().__init__()
        self.key = key


def _hash_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2), thread_name_prefix="hash")


def _login_throttle() -> LoginThrottle:
    return LoginThrottle(max_failures_per_minute=_FAILURES_PER_MINUTE)


def _rejection_delay() -> LeakyBucket:
    return LeakyBucket(per_second=50, burst=200, max_delay_seconds=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticator:
    """Finds out which caller sends a request.

    `rejection_delay` slows down a peer whose requests are rejected. `renewed_hashes` buffers {key id: (outdated hash,
    renewed hash)} until they are stored.
    """

    database: Database
    thread_pools: ThreadPools
    token_signer: TokenSigner
    allow_local_dev: bool
    verifier: Verifier = field(default_factory=Verifier)
    hash_threads: ThreadPoolExecutor = field(default_factory=_hash_threads)
    login_throttle: LoginThrottle = field(default_factory=_login_throttle)
    rejection_delay: LeakyBucket = field(default_factory=_rejection_delay)
    renewed_hashes: dict[str, tuple[str, str]] = field(default_factory=dict)

    async def authenticate(self, scope: Scope) -> Caller:
        """Return the caller of a request. Raises CredentialRejected, or RateLimited after too many failures."""
        request_id: str = scope["state"]["request_id"]
        credential = self._parse_credential(scope)
        if credential is None:
            return await self._authenticate_local_dev(scope, request_id)
        stored = await self.thread_pools.read(retrying(partial(self._find_key, credential)))
        caller = None if stored is None else keys.caller_of(stored, request_id=request_id)
        if stored is None or caller is None:
            raise CredentialRejected(stored)
        if isinstance(credential, PresentedKey):
            await self._require_secret(credential, stored, peer_of(scope))
            return caller
        restricted = tokens.apply_claims(caller, credential)
        if restricted is None:
            raise CredentialRejected(stored)
        return restricted

    async def hash_secret(self, secret: str) -> str:
        """Return the hash to store for a new secret, computed in a thread that no other request waits for."""
        return await asyncio.get_running_loop().run_in_executor(self.hash_threads, credentials.hash_secret, secret)

    def close(self) -> None:
        """Stop the hashing threads."""
        self.hash_threads.shutdown(cancel_futures=True)

    def _parse_credential(self, scope: Scope) -> Credential | None:
        """Return the credential, None when there is none. Authorization wins; sending a header twice is an error."""
        bearer_headers = [value for name, value in scope["headers"] if name == b"authorization"]
        if bearer_headers:
            match = _BEARER.match(bearer_headers[0].decode("latin-1")) if len(bearer_headers) == 1 else None
            return self._parse_bearer(match.group(1) if match else "")
        key_headers = [value for name, value in scope["headers"] if name == b"x-api-key"]
        if not key_headers:
            return None
        key = credentials.parse(key_headers[0].decode("latin-1").strip()) if len(key_headers) == 1 else None
        if key is None:
            raise CredentialRejected
        return key

    def _parse_bearer(self, text: str) -> Credential:
        is_key = text.startswith(credentials.PREFIX)
        credential = credentials.parse(text) if is_key else self.token_signer.decode(text)
        if credential is None:
            raise CredentialRejected
        return credential

    def _find_key(self, credential: Credential) -> StoredKey | None:
        with rls_context.acting_for(None), self.database.read_one() as connection:  # its team is not known yet
            if isinstance(credential, PresentedKey):
                return keys.find(connection, credential.public_id)
            return keys.find_by_id(connection, credential.sub)

    async def _authenticate_local_dev(self, scope: Scope, request_id: str) -> Caller:
        if not self.allow_local_dev or not local_dev.is_local(scope):
            raise CredentialRejected
        caller = await self.thread_pools.read(retrying(partial(self._default_owner, request_id)))
        if caller is None:
            raise CredentialRejected
        return caller

    def _default_owner(self, request_id: str) -> Caller | None:
        with rls_context.acting_for(None), self.database.read() as connection:
            return teams.local_dev_caller(connection, request_id=request_id)

    async def _require_secret(self, key: PresentedKey, stored: StoredKey, peer: str) -> None:
        if self.verifier.has_verified(key, stored.secret_hash):
            return
        names = (f"key {key.public_id}", f"peer {peer}")
        loop = asyncio.get_running_loop()
        is_correct = await loop.run_in_executor(self.hash_threads, self._verify, key, stored, names)
        if is_correct is None:
            raise RateLimited(_THROTTLED, retry_after_seconds=rate_limit.seconds_left_in_minute())
        if not is_correct:
            raise CredentialRejected(stored)

    def _verify(self, key: PresentedKey, stored: StoredKey, names: tuple[str, ...]) -> bool | None:
        """Verify a secret slowly; None, without verifying, when there were too many failures in this minute."""
        if not all(self.login_throttle.allows(name) for name in names):
            return None
        _ARGON2_CHECKS.inc()
        if not self.verifier.verify(key, stored.secret_hash):
            for name in names:
                self.login_throttle.count(name)
            return False
        if credentials.needs_rehash(stored.secret_hash):
            self.renewed_hashes[stored.id] = (stored.secret_hash, credentials.hash_secret(key.secret))
        return True


def peer_of(scope: Scope) -> str:
    """Return the address that failures are counted for; behind a trusted proxy it is already the client's own."""
    return login_throttle.peer_of(scope["client"][0]) if scope["client"] else "unknown"
