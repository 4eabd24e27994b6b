"""The words of this project: plain English and the field's own terms, in names, prose, errors and docs."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import ROOT

REJECTED: Final = {
    # word: what to write instead
    "allowed is": "must be",
    "allowed are": "must be one of",
    "anew": "again",
    "both_legs": "hybrid",
    "bury": "reap",
    "care": "maintenance",
    "crew": "supervisor, workers",
    "deed": "audit event",
    "far away": "remote",
    "glance": "read_one",
    "he": "they",
    "him": "them",
    "his": "their",
    "is no more": "no longer exists",
    "keeper": "owner of the index",
    "keeping": "retention, ipc",
    "leg": "retriever",
    "legs": "retrievers",
    "lent": "context text",
    "let through": "matched",
    "lets through": "matches",
    "lifeline": "parent_watchdog",
    "nearness": "similarity",
    "now and again": "periodically",
    "octets": "bytes",
    "patient": "DoctorContext, retrying",
    "put_off": "queue",
    "standing": "existing, status",
    "stands": "is",
    "stood": "was",
    "tallies": "metrics_dir",
    "told": "returned, reported",
    "trail": "audit",
    "unborn": "empty_database",
    "verdict": "results",
    "whoever": "anyone who, a client that",
    "whom": "name the subject",
}
"""Words that a native engineer would not use here, and the plain ones."""

PLACES_WITH_A_REASON: Final = {
    ("app/retrieval/stopwords.py", None): "the words of other people's texts",
    ("app/retrieval/intent.py", None): "the words of other people's texts",
    ("app/api/routes/search.py", "leg"): "a name on the wire",
    ("app/retrieval/calibration.py", "leg"): "a sentence that models are calibrated on",
    ("tests/test_words.py", None): "this list",
}
"""Files where a word (None: any) is meant, with the reason."""

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _words_of_name(name: str) -> str:
    return " ".join(_CAMEL.sub(" ", name).replace("_", " ").lower().split())


def _names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield what a file defines or binds; what it merely uses was named elsewhere."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for statement in body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    yield statement.value


def _prose(path: Path, tree: ast.AST, text: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings and comments, and in the code of the server every other text as well."""
    docstrings = {id(node): node for node in _docstrings(tree)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if id(node) in docstrings or path.is_relative_to(ROOT / "app"):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from enumerate(text.splitlines(), start=1)
        return
    tree = ast.parse(text)
    for line, name in _names(tree):
        yield line, _words_of_name(name)
        yield line, name.lower()
    yield from _prose(path, tree, text)


def _has_word(word: str, text: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def rejected_in(path: Path) -> list[str]:
    """Return where a file uses a rejected word: `path:line: word -> what to write`."""
    where = path.relative_to(ROOT).as_posix()
    found = []
    for line, text in _texts(path):
        lowered = " ".join(text.lower().split())
        for word, instead in REJECTED.items():
            is_meant = {(where, None), (where, word)} & PLACES_WITH_A_REASON.keys()
            if word in lowered and not is_meant and _has_word(word, lowered):
                found.append(f"{where}:{line}: {word} -> {instead}")
    return found


def _files() -> list[Path]:
    code = [path for room in ("app", "tests") for path in (ROOT / room).rglob("*.py")]
    docs = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted([*code, *docs])


def test_no_file_uses_a_rejected_word():
    """Names, docstrings, comments, the server's texts and the docs use the field's words."""
    assert [place for path in _files() for place in rejected_in(path)] == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("def keeper_of(index): ...", "keeper"),
        ("class BothLegs: ...", "legs"),
        ('"""What the legs of a search agreed on."""', "legs"),
        ("x = 1  # told by whoever asks", "told"),
        ("class A:\n    standing: int = 0", "standing"),
    ],
)
def test_a_rejected_word_is_found_wherever_it_is_written(text: str, word: str):
    """The guard itself can fail."""
    lowered = " ".join(
        [
            *(_words_of_name(name) for _, name in _names(ast.parse(text))),
            *(t for _, t in _prose(ROOT / "app", ast.parse(text), text)),
        ]
    ).lower()

    assert _has_word(word, lowered)
