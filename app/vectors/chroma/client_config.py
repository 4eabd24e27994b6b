"""How to access a Chroma server: tenant and database, credentials, and trusted certificates."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """How to access a Chroma server, apart from its URL. The defaults are those of a server without authentication.

    `ca_file` is a PEM file of certificates to trust instead of the default ones. `api_key` is sent in `auth_header`, as
    a bearer token if that is Authorization.
    """

    tenant: str = "default_tenant"
    database: str = "default_database"
    auth_header: str = "X-Chroma-Token"
    api_key: str = ""
    ca_file: Path | None = None

    @property
    def path(self) -> str:
        """The prefix of every path about collections."""
        return f"/api/v2/tenants/{self.tenant}/databases/{self.database}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        if not self.api_key:
            return {}
        is_bearer = self.auth_header.lower() == "authorization"
        return {self.auth_header: f"Bearer {self.api_key}" if is_bearer else self.api_key}

    @property
    def verify(self) -> ssl.SSLContext | bool:
        """The certificates to trust: True for those of httpx. Raises OSError when `ca_file` cannot be read."""
        return True if self.ca_file is None else ssl.create_default_context(cafile=self.ca_file)


DEFAULT: Final = ClientConfig()
"""For a server without authentication, such as our own child process."""
