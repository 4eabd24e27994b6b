"""A conversation cut into chunks that each make sense alone. Pure.

A question stays with its answer. What somebody asks to be done (a refund, a renewal) begins a chunk of its own. Long
chunks end between sentences, and never between a number, price or date and what it is about.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Final

from app.retrieval import tagging, text
from app.retrieval.tagging import Vocabulary, Words

ASKING: Final = "User"
MAX_CHARACTERS: Final = 1_500
"""About what an embedding model reads."""
PAUSE_MS: Final = 3_600_000
"""Who comes back after so long begins something new, unless it answers a question."""

DEFAULT_ACTIONS: Final[Words] = {
    "refund": ("refund", "money back", "reimburse", "退款", "退钱", "退费"),
    "return": ("return it", "return my", "return this order", "send back", "退货", "换货"),
    "renew": ("renew", "prolong", "续费", "续订", "续约", "续期", "续一年", "续半年"),
    "cancel": ("cancel", "unsubscribe", "terminate my", "取消", "退订", "注销", "解约"),
    "open": ("open", "sign up", "subscribe", "activate", "开通", "开户", "开立", "订阅", "激活"),
    "close": ("close", "deactivate", "关闭", "销户", "停用"),
    "upgrade": ("upgrade", "升级"),
    "downgrade": ("downgrade", "降级"),
    "transfer": ("transfer", "转账", "过户"),
    "reset": ("reset", "unlock", "重置", "解锁", "解冻"),
    "invoice": ("send an invoice", "issue an invoice", "开票", "开发票", "开具发票"),
    "book": ("book", "reschedule", "预约", "预订", "改签"),
}


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


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a conversation, and when it began (epoch ms) if that is known."""

    text: str
    at_epoch: int | None


_CLAUSE_END: Final = re.compile(r"(?<=[,，;；:：\n])")
_QUESTION: Final = re.compile(
    r"[?？]|[吗呢]\s*$|多少|怎么|如何|什么|能不能|可不可以|能否|可否|哪"
    r"|^\W*(?:what|how|when|where|why|who|which|can|could|do|does|is|are|will|would|may)\b",
    re.IGNORECASE,
)
_REQUEST: Final = re.compile(
    r"\b(?:please|pls|kindly|(?:can|could|would) you|(?:can|could|may) i|(?:wants?|needs?|like|wish|must|should)"
    r"|help me|let['’]?s|go ahead|request|agree|confirm|(?:time|have) to)\b"
    r"|请|麻烦|帮|要|想|需|申请|办理|给我|希望|可以|把|同意|确认",
    re.IGNORECASE,
)
_FILLERS: Final = frozenset(
    tagging.stems(
        text.marked("ok okay yes yeah also and then now next so just 好的 那 再 另外 还有 对了 然后 顺便 我 就 先")
    )
)
_REFUSALS: Final = frozenset(tagging.stems(text.marked("not t never without cancelled 不 别 没 勿")))
_DONE: Final = re.compile(r"thank|receiv|arriv|got|was|were|been|alreadi|收到|到账|已|完成|成功|谢")
_OR_NOT: Final = re.compile(r"(\w)不\1")
_ANOTHER: Final = re.compile(r"\b(?:also|another|besides|too|as well)\b|另外|另一|还有|还要|还想|再", re.IGNORECASE)
_SMALL_TALK: Final = re.compile(
    r"\b(?:hi|hello|hey|good|morning|afternoon|evening|day|can|could|you|someone|anyone|help|me|please|i|have|an?|need|some"
    r"|quick|question|about|how|are|is|there|support|with|something|my|thanks?|thank)\b"
    r"|你好|您好|在吗|在么|有人|请问|客服|我|想|要|咨询|一下|问|题|个|有|点|事|帮忙|谢谢|早上好|下午好|晚上好",
    re.IGNORECASE,
)
_SMALL_TALK_WORDS: Final = 2
_NUMBER: Final = re.compile(r"\d+(?:[.,:/-]\d+)*")

_SENTENCE_END: Final = re.compile(r"(?<=[。！？；…\n])|(?<=[.!?;])(?<!\n\d\.)(?<!\n\d\d\.)(?=\s)")
_GOES_ON: Final = re.compile(r"\s*(?!\d{1,2}[.)]\s)[-–(\[\"'“]?\s*(?:[$€£¥￥#~≈]|USD|EUR|RMB|CNY)?\s*\d", re.IGNORECASE)
"""A number, price or date belongs to what stands before it; the number of a list item does not."""
_INTRODUCES: Final = re.compile(r"[:：=]\s*$")
_WORD_END: Final = re.compile(r"(?<=[^\d\s][\s，、,])(?=[^\s\d$€£¥￥#])")
_NUMBER_REACH: Final = 40


def cut(utterances: Sequence[Utterance], actions: Vocabulary) -> list[Chunk]:
    """Return the chunks of a conversation in its order. When it goes on, only the last of them changes."""
    return [chunk for part in _parts(utterances, actions) for chunk in _bounded(part)]


def cut_at(utterances: Sequence[Utterance], starts: Sequence[int]) -> list[Chunk]:
    """Return the chunks that begin at `starts`, which ascend from 0; too long ones are cut further."""
    spans = pairwise([*starts, len(utterances)])
    return [chunk for first, last in spans for chunk in _bounded(utterances[first:last])]


def requests(said: str, actions: Vocabulary) -> list[str]:
    """Return the actions that somebody clearly asks for, or asks about; not those that are done or refused."""
    sentences = _sentences(_OR_NOT.sub(r"\1", said))
    return list(dict.fromkeys(name for sentence in sentences for name in _asked_in(sentence, actions)))


def _asked_in(sentence: str, actions: Vocabulary) -> Iterator[str]:
    is_about_one = bool(_QUESTION.search(sentence) or _NUMBER.search(sentence))
    for clause in _CLAUSE_END.split(sentence):
        asks = is_about_one or bool(_REQUEST.search(clause))
        for mention in actions.mentions_in(clause):
            near = "".join(mention.before[-4:]) + " " + "".join(mention.after[:3])
            if _DONE.search(near) or _REFUSALS.intersection(mention.before[-4:]):
                continue
            if asks or _FILLERS.issuperset(mention.before):
                yield mention.name


def _parts(utterances: Sequence[Utterance], actions: Vocabulary) -> Iterator[list[Utterance]]:
    """Yield what belongs together."""
    part: list[Utterance] = []
    wanted: set[str] = set()
    last_answer = max((place for place, each in enumerate(utterances) if each.speaker != ASKING), default=-1)
    for place, utterance in enumerate(utterances):
        if utterance.speaker == ASKING:
            asked = requests(utterance.said, actions)
            is_answered = bool(part) and (part[-1].speaker != ASKING or place > last_answer)
            if is_answered and _begins(part, wanted, utterances[place:], asked, actions):
                before, carried = _shared_out(part, asked, actions)
                yield before
                part, wanted = carried, set()
            wanted.update(asked)
        part.append(utterance)
    if part:
        yield part


def _begins(
    part: Sequence[Utterance], wanted: set[str], rest: Sequence[Utterance], asked: Sequence[str], actions: Vocabulary
) -> bool:
    """Say whether the first of `rest`, which asks for `asked`, begins something new after `part`."""
    utterance, before = rest[0], part[-1]
    is_reply = before.speaker != ASKING and bool(_QUESTION.search(_sentences(before.said)[-1]))
    if set(asked) - wanted or (asked and _is_another(utterance, part)):
        is_offered = is_reply and not wanted and not set(asked).isdisjoint(actions.names_in(before.said))
        return _says_something(part, wanted) and not is_offered
    if is_reply:
        return False
    return _has_paused(part, utterance) or _length(part) + _length(_exchange(rest)) > MAX_CHARACTERS


def _is_another(utterance: Utterance, part: Sequence[Utterance]) -> bool:
    """Say whether somebody asks for the same once more, about another number."""
    known = {number for each in part for number in _NUMBER.findall(each.said)}
    return bool(_ANOTHER.search(utterance.said)) and not known.issuperset(_NUMBER.findall(utterance.said))


def _says_something(part: Sequence[Utterance], wanted: set[str]) -> bool:
    """Say whether a part is more than a greeting."""
    said = " ".join(each.said for each in part if each.speaker == ASKING)
    return bool(wanted or _NUMBER.search(said)) or len(text.words(_SMALL_TALK.sub(" ", said))) > _SMALL_TALK_WORDS


def _has_paused(part: Sequence[Utterance], utterance: Utterance) -> bool:
    known = [each.at_epoch for each in part if each.at_epoch is not None]
    return utterance.at_epoch is not None and bool(known) and utterance.at_epoch - known[-1] > PAUSE_MS


def _exchange(rest: Sequence[Utterance]) -> list[Utterance]:
    """Return what is said up to the next question; what nobody answers stands alone."""
    asking = list(takewhile(lambda each: each.speaker == ASKING, rest))
    answers = list(takewhile(lambda each: each.speaker != ASKING, rest[len(asking) :]))
    return [*asking, *answers] if answers else [rest[0]]


def _length(part: Sequence[Utterance]) -> int:
    return sum(len(each.line) + 1 for each in part)


def _shared_out(
    part: Sequence[Utterance], asked: Sequence[str], actions: Vocabulary
) -> tuple[list[Utterance], list[Utterance]]:
    """Return what stays in a part, and the offer at its end that the next request answers ("Renew it for $99?")."""
    last = part[-1]
    sentences = _sentences(last.said)
    if last.speaker == ASKING or not _QUESTION.search(sentences[-1]):
        return list(part), []
    offer = next((n for n, each in enumerate(sentences) if not set(asked).isdisjoint(actions.names_in(each))), 0)
    if offer == 0:
        return list(part), []
    stays, goes = "".join(sentences[:offer]).strip(), "".join(sentences[offer:]).strip()
    return [*part[:-1], replace(last, said=stays)], [replace(last, said=goes)]


def _bounded(part: Sequence[Utterance]) -> Iterator[Chunk]:
    """Yield a part in pieces that are not too long, each line with its speaker."""
    lines: list[str] = []
    at_epoch: int | None = None
    for utterance in part:
        for number, said in enumerate(_pieces(utterance)):
            if lines and (number or sum(map(len, lines)) + len(said) > MAX_CHARACTERS):
                yield Chunk("\n".join(lines), at_epoch)
                lines, at_epoch = [], None
            lines.append(f"{utterance.speaker}: {said}")
            at_epoch = utterance.at_epoch if at_epoch is None else at_epoch
    if lines:
        yield Chunk("\n".join(lines), at_epoch)


def _pieces(utterance: Utterance) -> Iterator[str]:
    """Yield what was said in pieces of whole sentences."""
    piece = ""
    for sentence in _sentences(utterance.said):
        for bounded in _cut_at_words(sentence):
            if piece and len(piece) + len(bounded) > MAX_CHARACTERS:
                yield piece.strip()
                piece = ""
            piece += bounded
    if piece.strip():
        yield piece.strip()


def _sentences(said: str) -> list[str]:
    """Return the sentences of a text, a number and what introduces it in one; joined they are the text."""
    sentences = [""]
    for sentence in _SENTENCE_END.split(said):
        if not sentence.strip() or _GOES_ON.match(sentence) or _INTRODUCES.search(sentences[-1]):
            sentences[-1] += sentence
        else:
            sentences.append(sentence)
    return sentences[1:] if not sentences[0] and len(sentences) > 1 else sentences


def _cut_at_words(sentence: str) -> Iterator[str]:
    """Yield a sentence in pieces that are not too long."""
    start = 0
    while len(sentence) - start > MAX_CHARACTERS:
        window = sentence[start : start + MAX_CHARACTERS]
        end = start + max((found.start() for found in _WORD_END.finditer(window)), default=0)
        if end == start:
            end = _beside_number(sentence, start + MAX_CHARACTERS)
        yield sentence[start:end]
        start = end
    yield sentence[start:]


def _beside_number(sentence: str, end: int) -> int:
    """Return a place that is not inside a number, at most `_NUMBER_REACH` before `end`."""
    inside = (place for place in range(end, end - _NUMBER_REACH, -1) if not sentence[place].isdigit())
    return next(inside, end)
