"""A claude-mem database to fill."""

from contextlib import closing

import pytest

from tests.legacy import builders


@pytest.fixture
def path(tmp_path):
    return tmp_path / "claude-mem.db"


@pytest.fixture
def source(path):
    with closing(builders.create(path)) as connection:
        yield connection
