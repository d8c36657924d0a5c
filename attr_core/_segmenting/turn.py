"""What a message says besides its documents: labels, lead-in, paragraphs, and the question being answered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from attr_core._text.views import Span, gaps

_BLANK_LINES = re.compile(r"\n[^\S\n]*\n(?:[^\S\n]*\n)*")
FENCE_OR_BLANK_LINES = re.compile(
    r"(?P<fence>^[ \t]*(?P<ticks>`{3,}+|~{3,}+)[^\n]*\n.*?(?:^[ \t]*(?P<close>(?P=ticks))[ \t]*$|\Z))"
    rf"|{_BLANK_LINES.pattern}",
    re.MULTILINE | re.DOTALL,
)

_QUESTION_WORD = (
    r"(?:question|query|q|frage|pregunta|pergunta|domanda|vraag|pytanie|вопрос|问题|問題|質問|질문|السؤال|سؤال)"
)
_NOUN = (
    r"(?:contexts?|documents?|docs?|passages?|sources?|references?|excerpts?|snippets?|chunks?|information|articles?"
    r"|texts?|results?|knowledge|evidence|background|data|content|history|notes?|memor(?:y|ies)"
    r"|answer|a|response|assistant|user|human|input|output|title|url|file|page|score|id"
    r"|kontext|dokumente?|antwort|contexto?|contexte|documentos?|documenti?|respuesta|resposta|réponse|risposta"
    r"|контекст|документы?|ответ|上下文|参考资料|资料|文档|背景|回答|答案|文脈|文書|資料|参考|答え|문맥|문서|답변|السياق|الجواب"
    rf"|{_QUESTION_WORD})"
)
_ADJECTIVE = r"(?:the|these|here are|here is|some|retrieved|relevant|search|given|provided|additional|supporting|your)"
_MARK = r"[ \t>#*_`\-]*"
_LABEL = rf"{_MARK}(?:{_ADJECTIVE}[ _])*{_NOUN}(?:[ _]{_NOUN})?[ \t]*[\[(#]?\d{{0,4}}[\])]?[ \t*_]*[:：][ \t*_]*"
_LABEL_LINE = re.compile(
    rf"(?:{_LABEL}"
    rf"|{_MARK}{_NOUN}[ \t]*[\[(#]?\d{{1,4}}[\])]?(?:[ \t]*\([^()]{{0,120}}\))?\W*"  # Document [1](Title: …)
    r"|(?:source|title|url|file|file_?name|file_path|path|page|page_label|score|author|date|\w{1,20}_id|id|metadata)"
    r"[ \t]*[:：=].{0,160}"  # a document's header
    rf"|\s*#+[ \t]*(?:{_ADJECTIVE}[ _])*{_NOUN}"
    r"|(?:\s*</?\w[^<>]{0,120}>)+"
    r"|[\[(【][^\n]{0,60}[\])】][ \t]*[:：.]?"
    r"|\W*\d{0,4}\W*)",
    re.IGNORECASE,
)
_LABEL_AHEAD = re.compile(rf"(?:{_LABEL}|\[\d{{1,4}}\]|</?\w[^<>]{{0,120}}>)[ \t]*", re.IGNORECASE)
_LABEL_BEHIND = re.compile(rf"(?:(?<=[.!?:。！？])[ \t]*{_LABEL}|</?\w[^<>]{{0,120}}>)\Z", re.IGNORECASE)
_LONGEST_LABEL = 200
# What is left of a JSON list of documents where their texts are cut out: keys and short values, and the texts' own
# quotation marks at one end or both.
_QUOTE = r"\\*\""
_JSON_AROUND = re.compile(
    rf"(?={_QUOTE}\s*[,}}\]]|.*[:\[,]\s*{_QUOTE}\Z)(?:{_QUOTE})?"
    rf"(?>[\s\[\]{{}},:\d.+-]|{_QUOTE}[^\"\n]{{0,80}}\"|true|false|null|NaN|[eE]\d)*+(?:{_QUOTE})?",
    re.DOTALL,
)
_LONGEST_JSON = 400

_QUESTION = re.compile(
    rf"^{_MARK}(?:(?:user|the|my|your)(?:'s)?[ _])?{_QUESTION_WORD}[ \t*_]*[:：][ \t*_]*"
    rf"|^[ \t]*#+[ \t]*{_QUESTION_WORD}[ \t]*$"
    r"|<(?:user_)?(?:question|query)>",
    re.IGNORECASE | re.MULTILINE,
)
_QUESTION_END = re.compile(rf"\n[^\S\n]*\n|</|^{_LABEL}", re.IGNORECASE | re.MULTILINE)
_INSTRUCTION = re.compile(
    r"\b(?:answer|respond|reply|context|documents?|passages?|excerpts?|question|query|instructions?|below|following)\b",
    re.IGNORECASE,
)
_LONGEST_LEAD_IN = 200
"""Characters up to which the only paragraph beside the documents is taken for an instruction, whatever it says."""


class Part(NamedTuple):
    """A stretch of a user turn that becomes a segment."""

    start: int
    end: int
    fixed: bool


def turn_parts(content: str, documents: Sequence[Span], question: Span | None = None) -> list[Part]:
    """Cut the user turn that holds the question.

    The question is ``question`` where given, else the text after a label such as ``Question:``, else what follows the
    last document, else what precedes the first, else the last paragraph. It is fixed. So is an instruction before the
    first document or after the last: a paragraph that speaks of answering, of the documents or of the question, or a
    short one that stands alone there. Every other paragraph can be removed. Nothing where documents and labels are all.
    """
    documents = sorted(documents)
    question = question or _labelled(content, documents) or _by_position(content, documents)
    if question is None:
        return []
    parts = [Part(*question, fixed=True)]
    for gap in gaps(len(content), [*documents, question]):
        found = paragraphs(content, gap, keep_code=not documents)
        at_edge = bool(documents) and (gap[1] <= documents[0][0] or gap[0] >= documents[-1][1])
        for start, end in found:
            is_short_and_alone = len(found) == 1 and end - start <= _LONGEST_LEAD_IN
            fixed = at_edge and (is_short_and_alone or _INSTRUCTION.search(content, start, end) is not None)
            parts.append(Part(start, end, fixed))
    return sorted(parts)


def paragraphs(content: str, span: Span, *, keep_code: bool) -> list[Span]:
    """The paragraphs of a stretch without their labels.

    With ``keep_code`` fenced code is not cut. Beside documents a fence is a separator: it may well enclose one.
    """
    found: list[Span | None] = []
    start, has_code = span[0], False
    for match in (FENCE_OR_BLANK_LINES if keep_code else _BLANK_LINES).finditer(content, *span):
        if keep_code and match["fence"]:
            has_code = has_code or match["close"] is not None
        else:
            found.append(_paragraph(content, start, match.start(), has_code=has_code))
            start, has_code = match.end(), False
    found.append(_paragraph(content, start, span[1], has_code=has_code))
    return [paragraph for paragraph in found if paragraph is not None]


def _paragraph(content: str, start: int, end: int, *, has_code: bool) -> Span | None:
    return _stripped(content, start, end) if has_code else substance(content, (start, end))


def substance(content: str, span: Span) -> Span | None:
    """A stretch without white space, separators, labels and numbering at its ends; ``None`` where that is all."""
    start, end = _stripped(content, *span)
    while start < end:
        if end - start <= _LONGEST_JSON and _JSON_AROUND.fullmatch(content, start, end):
            return None
        first = content.find("\n", start, end)
        last = content.rfind("\n", start, end)
        tail = max(start, end - _LONGEST_LABEL)
        if _is_label(content[start : end if first < 0 else first]):
            shorter = (end if first < 0 else first, end)
        elif last >= 0 and _is_label(content[last + 1 : end]):
            shorter = (start, last)
        elif ahead := _LABEL_AHEAD.match(content, start, min(end, start + _LONGEST_LABEL)):
            shorter = (ahead.end(), end)
        elif behind := _LABEL_BEHIND.search(content[tail:end]):
            shorter = (start, tail + behind.start())
        else:
            return start, end
        start, end = _stripped(content, *shorter)
    return None


def _labelled(content: str, documents: Sequence[Span]) -> Span | None:
    """The last text outside the documents that a label calls the question."""
    for start, end in reversed(gaps(len(content), documents)):
        text = content[start:end]
        for label in reversed(list(_QUESTION.finditer(text))):
            begin = len(text) - len(text[label.end() :].lstrip())
            stop = _QUESTION_END.search(text, begin)
            found = _stripped(text, begin, stop.start() if stop else len(text))
            if found[0] < found[1]:
                question = (start + found[0], start + found[1])
                return substance(content, question) or question
    return None


def _by_position(content: str, documents: Sequence[Span]) -> Span | None:
    if documents:
        after = substance(content, (documents[-1][1], len(content)))
        return after or substance(content, (0, documents[0][0]))
    whole = (0, len(content))
    found = paragraphs(content, whole, keep_code=True)
    is_one_paragraph = len(found) <= 1 and not _BLANK_LINES.search(content.strip())
    return whole if is_one_paragraph or not found else found[-1]


def _is_label(line: str) -> bool:
    line = line.strip()
    return len(line) <= _LONGEST_LABEL and bool(_LABEL_LINE.fullmatch(line) or _JSON_AROUND.fullmatch(line))


def _stripped(content: str, start: int, end: int) -> Span:
    text = content[start:end]
    lead, trail = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
    return start + lead, max(start + lead, end - trail)
