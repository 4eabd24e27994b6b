"""The monthly quota: requests per calendar month and API key. Owned by the event loop, so nothing here needs a lock."""

from typing import Final

from litestar.types import Scope

from app.errors import QuotaExceeded
from app.services.quotas import rate_limit
from app.services.quotas.rate_limit import Quota
from app.store.database import Database

_STATE_KEY: Final = "is_over_quota"


class MonthlyQuota:
    """Counts the requests per month of each API key."""

    def __init__(self, per_month: int) -> None:
        self.quota = Quota(per_month, rate_limit.month)

    def admit(self, key_id: str, scope: Scope) -> bool:
        """Count a request. When the quota is used up, mark the request for enforce() and return False."""
        if self.quota.remaining(key_id) == 0:
            scope["state"][_STATE_KEY] = True
            return False
        self.quota.count(key_id)
        return True


def enforce(database: Database, scope: Scope) -> Database:
    """Return the database for the handler of a request.

    402 is documented as the last check: a request that is wrong in another way gets 403, 404, 412 or 409 even when its
    key is over the quota. Only the services find that out, inside their transactions. So such a request runs as usual
    up to the end of its first transaction, which then raises QuotaExceeded instead of committing.
    """
    return database.with_final_check(_raise_quota_exceeded) if scope["state"].get(_STATE_KEY) else database


def _raise_quota_exceeded() -> None:
    raise QuotaExceeded("Monthly request quota exceeded for this API key.")
