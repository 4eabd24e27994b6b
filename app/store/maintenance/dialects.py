"""The maintenance and health-check modules of each dialect."""

from typing import cast

from app.store.maintenance import MaintenanceBackend, postgresql, postgresql_checks, sqlite, sqlite_checks
from app.store.maintenance.checks import DialectChecks


def of(dialect: str) -> MaintenanceBackend:
    """Return the maintenance module of a dialect."""
    return cast("MaintenanceBackend", postgresql if dialect == "postgresql" else sqlite)


def checks_of(dialect: str) -> DialectChecks:
    """Return the health checks of a dialect."""
    return cast("DialectChecks", postgresql_checks if dialect == "postgresql" else sqlite_checks)
