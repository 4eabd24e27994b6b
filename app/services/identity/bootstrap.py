"""The first run: creates a team, a project and an owner's key in an empty database, once for all processes."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from app.caller import EVERYTHING, server_owner
from app.services.identity import credentials, keys, teams
from app.services.projects import projects
from app.store.database import Database
from app.store.models import teams as teams_table
from app.store.scope import unscoped

DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class FirstKey:
    """What the first run created. The key is not stored anywhere in clear text."""

    api_key: str
    team_id: str
    project_id: str


def run_once(database: Database) -> FirstKey | None:
    """Initialise an empty database; return None when there already is a team."""
    with database.read() as connection:
        if connection.scalar(select(unscoped(teams_table).exists())):
            return None
    key = credentials.mint()
    secret_hash = credentials.hash_secret(key.secret)
    with database.advisory_lock("first-run"), database.write() as connection:
        if connection.scalar(select(unscoped(teams_table).exists())):
            return None
        team = teams.create(connection, server_owner(), name=DEFAULT, slug=DEFAULT)
        owner = server_owner().within(team.id)
        project = projects.create(connection, owner, name=DEFAULT, slug=DEFAULT)
        keys.create(connection, owner, keys.NewKey(name="owner", scopes=(EVERYTHING,)), key, secret_hash)
    return FirstKey(credentials.format_key(key), team.id, project.id)
