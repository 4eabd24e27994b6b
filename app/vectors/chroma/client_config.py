"""How a Chroma server lets one in: which database of which tenant, with which header, trusting whose certificate."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What is said to a Chroma server besides its address. The standard values are those of a server without accounts.

    `ca_file` are certificates in PEM that are trusted instead of the system's. `api_key` is sent in `auth_header`, as a
    bearer token where that is Authorization.
    """

    tenant: str = "default_tenant"
    database: str = "default_database"
    auth_header: str = "X-Chroma-Token"
    api_key: str = ""
    ca_file: Path | None = None

    @property
    def path(self) -> str:
        """The beginning of every path that is about collections."""
        return f"/api/v2/tenants/{self.tenant}/databases/{self.database}"

    @property
    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        if not self.api_key:
            return {}
        is_bearer = self.auth_header.lower() == "authorization"
        return {self.auth_header: f"Bearer {self.api_key}" if is_bearer else self.api_key}

    @property
    def trusted(self) -> ssl.SSLContext | bool:
        """Whose certificates are believed: True are those that httpx brings."""
        return True if self.ca_file is None else ssl.create_default_context(cafile=self.ca_file)


STANDARD: Final = Access()
"""That of a server without accounts, as a child of ours is."""
