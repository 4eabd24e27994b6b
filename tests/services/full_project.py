"""A project with every field of every row filled, in three scripts, for tests that nothing gets lost."""

from sqlalchemy import select

from app.caller import Caller
from app.clock import new_id
from app.services.memories import memories
from app.services.projects import events, projects, sessions
from app.store.database import Database
from app.store.models import memory_items, memory_sources
from app.store.models import projects as projects_table

TEXTS = (
    "The gateway waits for the bank, says “three seconds”.\n\tcafé 🧵 \\ / \u2028 </script>",
    "支付网关等待银行三秒，《超时》之后重试。",
    "Шлюз ждёт банк три секунды, затем повторяет запрос — ещё раз.",
)
KINDS = ("observation", "summary", "prompt", "manual")
RULES = [{"kinds": ["prompt"], "maxAgeDays": 90}, {"expireWhen": ["已下架", "deprecated"], "afterDays": 30}]
MARCH = 1_772_323_200_000


def create(database: Database, caller: Caller, *, rows: int, name: str = "everything") -> str:
    """Create a project with about `rows` rows in total, and return its id."""
    with database.write() as connection:
        project = projects.create(
            connection,
            caller,
            name=f"{name} 支付",
            slug=name,
            root_path=f"/src/{name}",
            metadata={"ключ": [1, 2.5, None]},
        )
        rules = projects_table.update().where(projects_table.c.id == project.id)
        connection.execute(rules.values(retention=RULES))
    for start in range(0, rows, 1_000):
        with database.write() as connection:
            session_id = _session(connection, caller, project.id, start)
            for number in range(start, min(start + 1_000, rows)):
                if number % 5 == 4:
                    _event(connection, caller, project.id, session_id, number)
                else:
                    _memory(connection, caller, project.id, session_id, number)
    with database.write() as connection:
        _add_sources(connection, project.id)
        _supersede(connection, project.id)
    return project.id


def _session(connection, caller: Caller, project_id: str, number: int) -> str:
    session, _ = sessions.start(
        connection,
        caller,
        sessions.NewSession(
            project_id=project_id,
            external_session_id=f"run-{number}",
            content_session_id=f"content-{number}",
            memory_session_id=f"memory-{number}",
            platform_source="codex",
            agent_id="агент-1",
            agent_type="claude-code",
            title=TEXTS[number % 3],
            metadata={"branch": "主线", "depth": number},
            started_at_epoch=MARCH + number,
        ),
    )
    return sessions.end(connection, caller, session.id).id


def _event(connection, caller: Caller, project_id: str, session_id: str, number: int) -> None:
    events.add(
        connection,
        caller,
        events.NewEvent(
            project_id=project_id,
            source_type="hook",
            event_type="tool_use",
            occurred_at_epoch=MARCH + number // 7,
            server_session_id=session_id,
            content_session_id="content",
            memory_session_id="memory",
            platform_source="cursor",
            payload={"text": TEXTS[number % 3], "number": number, "nested": {"deep": [True, None]}},
            source_event_id=f"event-{number}",
            metadata={"번호": number},
        ),
    )


def _memory(connection, caller: Caller, project_id: str, session_id: str, number: int) -> None:
    text = TEXTS[number % 3]
    memories.add(
        connection,
        caller,
        memories.NewMemory(
            project_id=project_id,
            kind=KINDS[number % 4],
            type="решение",
            server_session_id=session_id,
            legacy_observation_id=number,
            title=f"{number} {text}",
            subtitle=f"subtitle {text}",
            text=f"text {text}",
            narrative=f"narrative {text}",
            facts=[text, "a\nb", ""],
            concepts=["超时", "timeouts"],
            files_read=["src/шлюз.py"],
            files_modified=["src/网关.py", "a b.py"],
            metadata={"claudeMem": {"score": 0.5, "文": text}},
            platform_source="codex",
            pinned=number % 10 == 0,
            created_at_epoch=MARCH + number // 3,
        ),
    )


def _add_sources(connection, project_id: str) -> None:
    """Add no, one or two sources to the memories, in turn."""
    item = memory_items.c
    of_project = item.project_id == project_id
    memories_of_project = connection.execute(
        select(item.id, item.team_id, item.seq).where(of_project).order_by(item.seq)
    ).all()
    rows = [
        {
            "id": new_id(),
            "team_id": team_id,
            "project_id": project_id,
            "memory_item_id": memory_id,
            "source_type": "import",
            "origin": f"claude-mem:{index}",
            "legacy_table": "observations",
            "legacy_id": str(seq),
            "uri": "file:///память.db",
            "metadata": {"строка": seq},
            "created_at_epoch": MARCH + index,
        }
        for memory_id, team_id, seq in memories_of_project
        for index in range(seq % 3)
    ]
    connection.execute(memory_sources.insert(), rows)


def _supersede(connection, project_id: str) -> None:
    """Mark every seventh memory as superseded by the newest one."""
    newest = memory_items.select().where(memory_items.c.project_id == project_id).order_by(memory_items.c.seq.desc())
    replacement = connection.execute(newest.limit(1)).first()
    assert replacement is not None
    old = (memory_items.c.project_id == project_id) & (memory_items.c.seq % 7 == 0)
    old &= memory_items.c.id != replacement.id
    connection.execute(memory_items.update().where(old).values(superseded_by=replacement.id))
