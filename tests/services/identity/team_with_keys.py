"""A team whose keys the tests create and change."""

from dataclasses import dataclass

from app.caller import Caller, Role
from app.services.identity import credentials, keys, members
from app.services.identity.keys import NewKey
from app.store.database import Database
from app.store.records import ApiKey

HASH = "no key of these tests is ever presented"


@dataclass(frozen=True)
class TeamWithKeys:
    """A team with two projects; the owner is no member of it."""

    database: Database
    owner: Caller
    project_id: str
    other_project_id: str

    def create(self, creator: Caller, **fields: object) -> ApiKey:
        with self.database.write() as connection:
            return keys.create(connection, creator, NewKey(**fields), credentials.mint(), HASH)  # type: ignore[arg-type]

    def caller_with(self, creator: Caller | None = None, **fields: object) -> Caller:
        """Return the caller of a new key."""
        return self.caller_of(self.create(creator or self.owner, **fields))

    def caller_of(self, key: ApiKey) -> Caller:
        with self.database.read() as connection:
            stored = keys.find_by_id(connection, key.id)
        assert stored is not None
        caller = keys.caller_of(stored, request_id="test")
        assert caller is not None
        return caller

    def add_member(self, user_id: str, role: Role) -> str:
        with self.database.write() as connection:
            members.add(connection, self.owner, user_id=user_id, role=role)
        return user_id

    def change(self, caller: Caller, key: ApiKey, **changes: object) -> ApiKey:
        with self.database.write() as connection:
            return keys.change(connection, caller, key.id, changes)

    def rotate(self, caller: Caller, key: ApiKey, overlap_seconds: int = 0) -> ApiKey:
        with self.database.write() as connection:
            return keys.rotate(connection, caller, key.id, credentials.mint(), HASH, overlap_seconds=overlap_seconds)

    def revoke(self, caller: Caller, key: ApiKey) -> ApiKey:
        with self.database.write() as connection:
            return keys.revoke(connection, caller, key.id)

    def stored(self, key: ApiKey) -> ApiKey:
        with self.database.read() as connection:
            return keys.get(connection, self.owner, key.id)
