"""A claim -> the phrases that can be a pivot: numbers, negations and names whole, else words.

The rules; the first that fits wins. None looks at meaning, so each can be checked by looking at the text.

1. A *number* has its sign, currency, unit, percent sign, scale word and ordinal ending, what calls it a number
   (``No.``, ``§``, ``v``), and the other end of its range. A date and a time of day are one number.
2. A *negation* has its auxiliary and the word that it denies, unless that is a function word: ``did not open``,
   ``never opened``, ``isn't``; ``n'a pas ouvert``, ``nicht geöffnet``, ``не открылся``.
3. A *word* has what hyphens, apostrophes, dots and underscores hold together inside: ``GPT-4``, ``O'Neill``. So has
   an address on the web.
4. A *name* is a run of words with a capital, particles in its midst and the stops of initials and titles included:
   ``Ludwig van Beethoven``, ``University of Aldemoor``, ``J. R. Weiss``. A function word is not part of one, be it
   capitalised as the first of its sentence; nor is any word joined where the claim has only capitals.
5. In a script without spaces each character with its marks is a *part*, in one without capitals each word. Parts that
   change together are put together by :mod:`attr_core.pivots`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from attr_core._text.language import is_common

_SPACE = r"[ \u00a0\u2009\u202f]"
_END = r"(?![A-Za-z0-9_\u00c0-\u0dff])"

_UNIT = (
    r"(?:%|‰|°(?:[ ]?[CF])?|per[ ]?cent|[mkµμn]?g|mcg|[mcd]?l|[mcdkµμn]?m|[mk]?m[²³]|km/h|m/s|mph|ft|lbs?|oz|tonn?es"
    r"|tons?|miles?|m?s|min|hrs?|h|Uhr|[kMG]?Hz|[kMGT]?Wh?|[mk]?V|mA|[kMh]?Pa|bar|kJ|k?cal|[kKMGT]i?B|px|mol|dB|[$€£¥₹₩₽]"
    r"|USD|EUR|GBP|CHF|dollars?|euros?|pounds?|cents?|years?|months?|weeks?|days?|hours?|minutes?|seconds?"
    r"|[aApP]\.?[mM]\b\.?)"
)
_UNIT_CJK = r"(?:年(?:\d+月(?:\d+日)?)?|月(?:\d+日)?|[日时時点點分秒人个個只名位次万萬億亿円元歳岁度]+)"
_SCALE = r"(?:thousand|million|billion|trillion|dozen|bn|[kKM]|Mio\.|Mrd\.|Millionen|Milliarden?|millions|milliards?)"
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?|Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember"
    r"|janvier|février|mars|avril|mai|juin|juillet|août|septembre|octobre|novembre|décembre"
    r"|enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre)"
)
_DIGITS = rf"(?:\d{{1,3}}(?:{_SPACE}\d{{3}})+(?!\d)|\d+(?:[.,:/'’–-]\d+)*)"
_AMOUNT = (
    rf"(?:(?:US|A|C)?[$€£¥₹₩₽]{_SPACE}?|(?:USD|EUR|GBP|CHF){_SPACE})?[+\-−±]?{_DIGITS}"
    rf"(?:{_UNIT_CJK}|(?:st|nd|rd|th|er|º|ª|s|-(?:rc|alpha|beta|dev)[.]?\d*)?(?:{_SPACE}?{_SCALE}{_END})?"
    rf"(?:[ \u00a0\u202f-]?{_UNIT}{_END})?)"
)
_DAY = r"(?:\d{1,2}[ ]?[–-][ ]?)?\d{1,2}(?:st|nd|rd|th|er|º|\.)?"
_NUMBER = (
    rf"(?:{_DAY}{_SPACE}(?:of[ ]|de[ ])?{_MONTH}(?:,?[ ](?:de[ ])?\d{{4}})?"
    rf"|{_MONTH}{_SPACE}(?:{_DAY}(?!\d)(?:,?[ ]\d{{4}})?|\d{{4}})"
    rf"|(?:(?:Nos?\.|Nr\.|Nº|№|§§?|\#|[Aa]rt\.|[Ff]ig\.|pp?\.|v){_SPACE}?)?{_AMOUNT}"
    rf"(?:(?:{_SPACE}?[–—±-]{_SPACE}?|[ ](?:to|bis|à)[ ]){_AMOUNT})?){_END}(?!-[^\W\d_])"
)

# The marks of scripts that write vowels as such; Indic blocks are taken whole but for their stops.
_MARK = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0963\u0966-\u0dff\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1"
    r"\u0eb4-\u0ebc\u0ec8-\u0ecd\u102b-\u103e\u1056-\u1059\u17b4-\u17d3\u200c\u200d"
)
_UNSPACED = (
    r"\u0e01-\u0e5b\u0e81-\u0edf\u1000-\u1049\u1050-\u109f\u1780-\u17dd\u3005-\u3007\u3040-\u309f\u3400-\u4dbf"
    r"\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_LETTERS = rf"(?:[^\W_{_UNSPACED}]|[{_MARK}])+"
_WORD = rf"{_LETTERS}(?:['’.‑_&-]{_LETTERS})*"

_AUXILIARY = (
    r"(?:is|are|was|were|be|been|am|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must|ist|sind|war"
    r"|waren|wurde|wurden|hat|haben|hatte|kann|wird)"
)
_NEGATION = (
    rf"(?i:n(?:e[ ]|['’]){_LETTERS}[ ](?:pas|plus|jamais|rien)|{_LETTERS}n['’]t|cannot"
    rf"|(?:{_AUXILIARY}[ ])?(?:not|never|no[ ]longer|nicht(?:[ ]mehr)?|nie(?:mals)?|keine?[nmrs]?)"
    rf"|no|non|não|nunca|niet|geen|nooit|inte|ikke|не|никогда|لم|لن|لا|ليس|לא){_END}(?![’'-])"
)

_PHRASE = re.compile(
    rf"(?<![^\W_{_UNSPACED}])(?P<number>{_NUMBER})"
    rf"|(?P<part>[{_UNSPACED}][{_MARK}]*)"
    r"|(?P<address>https?://[^\s<>\"']*[^\s<>\"'.,;:!?)\]])"
    rf"|(?<![^\W_])(?P<negation>{_NEGATION})"
    rf"|(?P<word>{_WORD})"
)
_DENIED = re.compile(rf"[ ]({_WORD})")

_PARTICLES = "van von de del della di da dos du bin ibn al of ter zu zur zum af av".split()  # noqa: SIM905
_PARTICLES_NEXT = [*_PARTICLES, "der", "den", "la", "las", "los", "le", "the", "het"]
_LONGEST_INITIAL = 4
_MOST_PARTICLES = 3


class Phrase(NamedTuple):
    """A span of the response; ``is_part`` where it may be only a part of a phrase."""

    start: int
    end: int
    is_part: bool = False


def phrases(text: str, start: int, end: int, *, language: str) -> list[Phrase]:
    """The phrases of ``text[start:end]``, left to right; ``language`` tells its function words."""
    found: list[Phrase] = []
    words: list[Phrase] = []
    position = start
    while match := _PHRASE.search(text, position, end):
        position = match.end()
        if match.lastgroup == "negation":
            denied = _DENIED.match(text, position, end)
            if denied and not is_common(denied[1], language) and not denied[1][0].isdigit():
                position = denied.end()
        phrase = Phrase(match.start(), position, match.lastgroup == "part" or _has_no_case(match))
        (words if match.lastgroup == "word" else found).append(phrase)
    has_small_letters = any(character.islower() for character in text[start:end])
    return sorted(found + (_with_names(text, words, language) if has_small_letters else words))


def _has_no_case(match: re.Match[str]) -> bool:
    word = match[0]
    return match.lastgroup == "word" and word.lower() == word.upper() and any(map(str.isalpha, word))


def _with_names(text: str, words: list[Phrase], language: str) -> list[Phrase]:
    """The words, those of a name put together."""
    found: list[Phrase] = []
    index = 0
    while index < len(words):
        last = index
        if _is_name(text, words[index], language):
            while (following := _name_goes_on(text, words, last, language)) is not None:
                last = following
        found.append(words[index] if last == index else Phrase(words[index].start, words[last].end))
        index = last + 1
    return found


def _name_goes_on(text: str, words: list[Phrase], last: int, language: str) -> int | None:
    """The next word of the name whose word number ``last`` is, over particles; ``None`` at its end."""
    allowed = _PARTICLES
    for index in range(last + 1, min(last + 2 + _MOST_PARTICLES, len(words))):
        before, word = words[index - 1], words[index]
        between = text[before.end : word.start]
        is_short = before.end - before.start <= _LONGEST_INITIAL or "." in text[before.start : before.end]
        if between not in (" ", "\u00a0") and not (between in (". ", ".\u00a0") and is_short and index == last + 1):
            return None
        if text[word.start : word.end].casefold() in allowed:
            allowed = _PARTICLES_NEXT
        else:
            return index if _is_name(text, word, language) else None
    return None


def _is_name(text: str, word: Phrase, language: str) -> bool:
    said = text[word.start : word.end]
    return any(map(str.isupper, said)) and not is_common(said, language)
