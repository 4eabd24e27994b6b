"""A conversation cut into chunks that each make sense alone. Pure.

A question stays with its answer. What somebody asks to be done (a refund, a renewal) begins a chunk of its own. Long
chunks end between sentences, and never between a number, price or date and what it is about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Final

from app.retrieval import intent, sentences
from app.retrieval.tagging import Vocabulary

ASKING: Final = "User"
MAX_CHARACTERS: Final = 1_500
"""About what an embedding model reads. A long answer may go half as far beyond it, to stay with its question."""
PAUSE_MS: Final = 3_600_000
"""Who comes back after so long begins something new, unless it answers a question."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """What one speaker said at a time (epoch ms), cleaned."""

    speaker: str
    said: str
    at_epoch: int | None = None

    @property
    def line(self) -> str:
        """The words with their speaker."""
        return f"{self.speaker}: {self.said}"

    @property
    def is_answer(self) -> bool:
        """Whether the other side speaks."""
        return self.speaker != ASKING


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a conversation, and when it began (epoch ms) if that is known."""

    text: str
    at_epoch: int | None


def cut(utterances: Sequence[Utterance], actions: Vocabulary) -> list[Chunk]:
    """Return the chunks of a conversation in its order. When it goes on, only the last of them changes."""
    return [chunk for part in _parts(utterances, actions) for chunk in _bounded(part)]


def cut_at(utterances: Sequence[Utterance], starts: Sequence[int]) -> list[Chunk]:
    """Return the chunks that begin at `starts`, which ascend from 0; too long ones are cut further."""
    spans = pairwise([*starts, len(utterances)])
    return [chunk for first, last in spans for chunk in _bounded(utterances[first:last])]


def _parts(utterances: Sequence[Utterance], actions: Vocabulary) -> list[list[Utterance]]:
    """Return what belongs together."""
    parts: list[list[Utterance]] = [[]]
    wanted: set[str] = set()
    last_answer = max((place for place, each in enumerate(utterances) if each.is_answer), default=-1)
    for place, utterance in enumerate(utterances):
        if not utterance.is_answer:
            part, asked = parts[-1], intent.requests(utterance.said, actions)
            is_answered = bool(part) and (part[-1].is_answer or place > last_answer)
            if is_answered and _begins(part, wanted, utterances[place:], asked, actions):
                parts[-1:] = _shared_out(part, asked, actions)
                wanted = set()
            wanted.update(asked)
        parts[-1].append(utterance)
    return parts


def _begins(
    part: Sequence[Utterance], wanted: set[str], rest: Sequence[Utterance], asked: Sequence[str], actions: Vocabulary
) -> bool:
    """Say whether the first of `rest`, which asks for `asked`, begins something new after `part` and its requests."""
    utterance, before = rest[0], part[-1]
    is_reply = before.is_answer and intent.ends_with_question(before.said)
    if set(asked) - wanted or (asked and _is_another(utterance, part)):
        is_chosen = is_reply and not wanted and not set(asked).isdisjoint(actions.names_in(before.said))
        return not is_chosen and (bool(wanted) or not _is_small_talk(part))
    if is_reply:
        return False
    return _has_paused(part, utterance) or _length(part) + _length(_exchange(rest)) > MAX_CHARACTERS


def _is_another(utterance: Utterance, part: Sequence[Utterance]) -> bool:
    """Say whether somebody asks for the same once more, about another number."""
    known = {number for each in part for number in intent.NUMBER.findall(each.said)}
    return intent.asks_for_more(utterance.said) and not known.issuperset(intent.NUMBER.findall(utterance.said))


def _is_small_talk(part: Sequence[Utterance]) -> bool:
    return intent.is_small_talk(" ".join(each.said for each in part if not each.is_answer))


def _has_paused(part: Sequence[Utterance], utterance: Utterance) -> bool:
    known = [each.at_epoch for each in part if each.at_epoch is not None]
    return utterance.at_epoch is not None and bool(known) and utterance.at_epoch - known[-1] > PAUSE_MS


def _exchange(rest: Sequence[Utterance]) -> list[Utterance]:
    """Return what is said up to the next question; what nobody answers stands alone."""
    questions = list(takewhile(lambda each: not each.is_answer, rest))
    answers = list(takewhile(lambda each: each.is_answer, rest[len(questions) :]))
    return [*questions, *answers] if answers else [rest[0]]


def _length(part: Sequence[Utterance]) -> int:
    return sum(len(each.line) + 1 for each in part)


def _shared_out(part: Sequence[Utterance], asked: Sequence[str], actions: Vocabulary) -> list[list[Utterance]]:
    """Return what stays in a part, and the offer at its end that the next request answers ("Renew it for $99?")."""
    last, said = part[-1], sentences.of(part[-1].said)
    offers = [place for place, each in enumerate(said) if not set(asked).isdisjoint(actions.names_in(each))]
    if not last.is_answer or not intent.ends_with_question(last.said) or not offers or offers[0] == 0:
        return [list(part), []]
    stays, goes = "".join(said[: offers[0]]).strip(), "".join(said[offers[0] :]).strip()
    return [[*part[:-1], replace(last, said=stays)], [replace(last, said=goes)]]


def _bounded(part: Sequence[Utterance]) -> list[Chunk]:
    """Return a part in chunks that are not too long, each line with its speaker."""
    chunks: list[list[Utterance]] = [[]]
    for utterance in part:
        used = _length(chunks[-1])
        if used > MAX_CHARACTERS // 2 and used + len(utterance.line) > MAX_CHARACTERS:
            chunks.append([])
            used = 0
        pieces = sentences.pieces(utterance.said, max_characters=MAX_CHARACTERS, first=MAX_CHARACTERS - used)
        first, *more = [replace(utterance, said=said) for said in pieces]
        chunks[-1].append(first)
        chunks += [[piece] for piece in more]
    return [Chunk("\n".join(each.line for each in lines), lines[0].at_epoch) for lines in chunks if lines]
