"""Splits a conversation into chunks that each make sense alone. Pure functions.

A question stays with its answer. A request for an action (a refund, a renewal) starts a chunk of its own. Long chunks
end between sentences, and never between a number, price or date and its subject.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Final

from app.retrieval import intent, sentences
from app.retrieval.tagging import Vocabulary

CUSTOMER: Final = "User"
MAX_CHARACTERS: Final = 1_500
"""About what an embedding model reads. A long answer may exceed it by half, to stay with its question."""
PAUSE_MS: Final = 3_600_000
"""A message after so long a pause starts something new, unless it answers a question."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """A cleaned message with its speaker and time (epoch ms)."""

    speaker: str
    text: str
    at_epoch: int | None = None

    @property
    def line(self) -> str:
        """The text, prefixed with its speaker."""
        return f"{self.speaker}: {self.text}"

    @property
    def is_answer(self) -> bool:
        """Whether it is from anyone but the customer."""
        return self.speaker != CUSTOMER


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a conversation, and when it began (epoch ms), if known."""

    text: str
    at_epoch: int | None


def cut(utterances: Sequence[Utterance], actions: Vocabulary) -> list[Chunk]:
    """Return the chunks of a conversation in order. When the conversation continues, only the last one changes."""
    return [chunk for part in _parts(utterances, actions) for chunk in _split_long(part)]


def cut_at(utterances: Sequence[Utterance], starts: Sequence[int]) -> list[Chunk]:
    """Return the chunks that start at `starts`, which ascend from 0; overlong ones are split further."""
    spans = pairwise([*starts, len(utterances)])
    return [chunk for first, last in spans for chunk in _split_long(utterances[first:last])]


def _parts(utterances: Sequence[Utterance], actions: Vocabulary) -> list[list[Utterance]]:
    """Group the utterances that belong together."""
    parts: list[list[Utterance]] = [[]]
    open_actions: set[str] = set()
    last_answer = max((index for index, each in enumerate(utterances) if each.is_answer), default=-1)
    for index, utterance in enumerate(utterances):
        if not utterance.is_answer:
            part, actions_here = parts[-1], intent.requested_actions(utterance.text, actions)
            is_answered = bool(part) and (part[-1].is_answer or index > last_answer)
            if is_answered and _starts_part(part, open_actions, utterances[index:], actions_here, actions):
                parts[-1:] = _move_offer(part, actions_here, actions)
                open_actions = set()
            open_actions.update(actions_here)
        parts[-1].append(utterance)
    return parts


def _starts_part(
    part: Sequence[Utterance],
    open_actions: set[str],
    rest: Sequence[Utterance],
    requested: Sequence[str],
    actions: Vocabulary,
) -> bool:
    """Return whether the first of `rest`, which requests `requested`, starts something new after `part`.

    `open_actions` are the actions requested in `part`.
    """
    utterance, before = rest[0], part[-1]
    is_reply = before.is_answer and intent.ends_with_question(before.text)
    if set(requested) - open_actions or (requested and _is_another(utterance, part)):
        is_chosen = is_reply and not open_actions and not set(requested).isdisjoint(actions.names_in(before.text))
        return not is_chosen and (bool(open_actions) or not _is_small_talk(part))
    if is_reply:
        return False
    return _has_paused(part, utterance) or _length(part) + _length(_exchange(rest)) > MAX_CHARACTERS


def _is_another(utterance: Utterance, part: Sequence[Utterance]) -> bool:
    """Return whether the same is requested again, for another number."""
    known = {number for each in part for number in intent.NUMBER.findall(each.text)}
    return intent.asks_for_more(utterance.text) and not known.issuperset(intent.NUMBER.findall(utterance.text))


def _is_small_talk(part: Sequence[Utterance]) -> bool:
    return intent.is_small_talk(" ".join(each.text for each in part if not each.is_answer))


def _has_paused(part: Sequence[Utterance], utterance: Utterance) -> bool:
    known = [each.at_epoch for each in part if each.at_epoch is not None]
    return utterance.at_epoch is not None and bool(known) and utterance.at_epoch - known[-1] > PAUSE_MS


def _exchange(rest: Sequence[Utterance]) -> list[Utterance]:
    """Return the messages up to the next question; an unanswered message stays alone."""
    questions = list(takewhile(lambda each: not each.is_answer, rest))
    answers = list(takewhile(lambda each: each.is_answer, rest[len(questions) :]))
    return [*questions, *answers] if answers else [rest[0]]


def _length(part: Sequence[Utterance]) -> int:
    return sum(len(each.line) + 1 for each in part)


def _move_offer(part: Sequence[Utterance], requested: Sequence[str], actions: Vocabulary) -> list[list[Utterance]]:
    """Return what stays in a part, and the offer at its end that the next request accepts ("Renew it for $99?")."""
    last, of_last = part[-1], sentences.of(part[-1].text)
    offers = [index for index, each in enumerate(of_last) if not set(requested).isdisjoint(actions.names_in(each))]
    if not last.is_answer or not intent.ends_with_question(last.text) or not offers or offers[0] == 0:
        return [list(part), []]
    stays, moves = "".join(of_last[: offers[0]]).strip(), "".join(of_last[offers[0] :]).strip()
    return [[*part[:-1], replace(last, text=stays)], [replace(last, text=moves)]]


def _split_long(part: Sequence[Utterance]) -> list[Chunk]:
    """Return a part as chunks that are not too long, each line with its speaker."""
    chunks: list[list[Utterance]] = [[]]
    for utterance in part:
        used = _length(chunks[-1])
        if used > MAX_CHARACTERS // 2 and used + len(utterance.line) > MAX_CHARACTERS:
            chunks.append([])
            used = 0
        pieces = sentences.pieces(utterance.text, max_characters=MAX_CHARACTERS, first=MAX_CHARACTERS - used)
        first, *more = [replace(utterance, text=piece) for piece in pieces]
        chunks[-1].append(first)
        chunks += [[piece] for piece in more]
    return [Chunk("\n".join(each.line for each in lines), lines[0].at_epoch) for lines in chunks if lines]
