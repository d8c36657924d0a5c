"""A text -> its quantities: numbers with the unit right behind them, however they are written.

The rules, each of which can be checked by looking at the text.

1. Digits may be grouped by commas, spaces (thin ones too) or apostrophes, with a decimal point: ``1,000`` is ``1 000``.
   Points group and a comma parts off decimals only where nothing else can be meant: ``1.000,5``, ``1.000.000``,
   ``1,5``, ``0,125``. ``1.000`` is one and ``1,000`` a thousand, as in English.
2. Numbers in English words count as digits do, with years, halves and dozens. *One* does where it is no pronoun
   (not in "no one", "one of them", "the one that"), *second* where it is no span of time, *first* where it is no
   adverb: behind "the" or "its", but not in "it first opened".
3. A minus (``-``, ``−``) counts where nothing stands before it that it could join; so do "minus" and "negative".
4. Scales multiply: ``1.2 million``, ``$4k``. Fractions are values below one: ``1/2`` is ``0.5``, ``24/7`` is a text.
   Of powers (``10^5``) each number stands alone; ``1e5`` is one.
5. A unit has one name (``%`` is percent, ``$`` is dollars) and is never converted: 1 h is not 60 min. In a range
   (``5–10 mg``) it belongs to both ends. An ordinal has the unit ``th``, save in a date: ``May 1st`` is ``May 1``.
6. Dates in digits, times of day, versions and addresses are texts: ``2024-05-01``, ``17:30``, ``1.2.3``. So is a word
   with a digit in it, an identifier: ``B2B``, ``v1.2``, ``COVID-19``, ``GPT-4``; but ``mid-1990s`` holds a number.
7. The marker of a list item and the number of a citation (``[1]``) count nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from attr_core._text.number_words import SCALES, begins_number, spelled_number
from attr_core._text.units import CURRENCIES, UNIT, unit_named

__all__ = ["ORDINAL", "Quantity", "quantities"]

ORDINAL = "th"
"""The unit of an ordinal."""

_LETTER = r"A-Za-z_ªµº²³¹⁰-⁹\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u0dff\u1e00-\u1fff"
_W = rf"[{_LETTER}\d]"
_L = rf"[{_LETTER}]"
_VULGAR = "¼½¾⅐-⅞"
_LONGEST = 80
"""Characters of a number; what is longer is compared as a text."""

_GROUPED = (
    r"[1-9]\d{0,2}(?:,\d{3}){1,8}(?:\.\d+)?(?!,?\d)|[1-9]\d{0,2}(?:[ ]\d{3}){1,8}(?:[.,]\d+)?(?![ ]?\d)"
    r"|[1-9]\d{0,2}(?:'\d{3}){1,8}(?:\.\d+)?(?!\d)|[1-9]\d{0,2}(?:\.\d{3}){1,8},\d+(?!\d)"
    r"|[1-9]\d{0,2}(?:\.\d{3}){2,8}(?![.]?\d)"
)
_DECIMAL_COMMA = r"(?<!\d,)(?:\d{1,3},\d{1,2}|0,\d+)(?!\d|,\d)"
_FRACTION = rf"(?:\d{{1,3}}[ ])?\d{{1,4}}[/⁄]\d{{1,4}}(?![/⁄]?\d)|\d*[{_VULGAR}]"
_PLAIN = rf"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{{1,3}}(?!{_W}))?"
_DIGITS = rf"(?:{_FRACTION}|{_GROUPED}|{_DECIMAL_COMMA}|{_PLAIN})"
_CURRENCY = rf"(?:(?:US|A|C)?\$|[€£¥₹₩₽]|(?<!{_W})(?:USD|EUR|GBP|CHF|JPY|CAD|AUD|INR|CNY))"
_NUMBER = re.compile(
    rf"(?P<sign>[-+–])?(?:(?P<currency>{_CURRENCY})[ ]?(?P<inner>-)?)?(?P<digits>{_DIGITS})"
    rf"(?P<ordinal>(?:st|nd|rd|th)(?!{_W}))?"
)
_STAMP = (
    r"\d{4}-\d{1,2}-\d{1,2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})?)?|\d{4}/\d{1,2}/\d{1,2}"
    r"|\d{1,2}(?P<part>[./-])\d{1,2}(?P=part)\d{4}|\d{1,2}/\d{1,2}/\d{2}|\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
    r"|(?!\d{1,3}(?:\.\d{3}){2,8}(?!\.?\d))\d+(?:\.\d+){2,7}"
)
_APART = r"(?:mid|pre|post|non|sub|under|over|top|early|late|circa|since)"
_TOKEN = re.compile(
    r"(?P<skip>\[\^?\d[\d, -]{0,11}\](?!\()|^[ \t>]*[(]?\d{1,3}[.)][ \t]+(?=\S))"
    r"|(?P<address>https?://[^\s<>\"']*[^\s<>\"'.,;:!?)\]])"
    rf"|(?P<stamp>(?<!{_W})(?:{_STAMP})(?!{_W}|[-/:]\d))"
    rf"|(?P<number>(?:(?<![^\s(\[=:<>~≈\"',;$€£])[-+]|(?<![^\s(])–(?=\d))?(?:{_CURRENCY}[ ]?-?(?=[.]?\d))?"
    rf"(?<!{_W})(?:\d|\.\d|[{_VULGAR}]))"
    rf"|(?P<name>{_L}{_W}{{,80}}\d{_W}*(?:[-./]{_W}+)*"
    rf"|(?!{_APART}-\d){_L}{{1,80}}(?:-{_L}{{1,80}}){{,4}}-\d{_W}*(?:[-.]{_W}+)*)"
    rf"|(?P<word>{_L}+)"
    rf"|(?P<code>\d{_W}*)",
    re.MULTILINE,
)
_CODE = re.compile(rf"\d{_W}*(?:[-.]{_W}+)*")
_TAIL = re.compile(rf"(?:(?:[ ]|-)?(?P<scale>(?i:{'|'.join(SCALES)}|bn|mn)|k)(?!{_W}))?(?:[ ]|-)?(?P<unit>{UNIT})?")
_SHORT_SCALES = {"k": 1_000, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}
_MONEY_SCALE = re.compile(rf"[ ]?(?P<scale>[kKmMbB]n?)(?!{_W})")
_RANGE = re.compile(r"[ ]?[–-][ ]?|[ ]to[ ]")
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?)"
)
_MONTH_BEFORE = re.compile(rf"\b{_MONTH}[ ](?:the[ ])?\Z")
_MONTH_AFTER = re.compile(rf"[ ](?:of[ ])?{_MONTH}(?!\w)")
_WORD_BEFORE = re.compile(r"([A-Za-z]+)[ ]+\Z")
_WORD_AFTER = re.compile(r"[ ]+([A-Za-z]+)")
_FIRST_OF_ALL = re.compile(r"[ ](?:of all|and foremost)\b")
_LETTER_OR_DIGIT = re.compile(_W)
_OPENS = re.compile(r"(?:\A|[.!?:\n])\s*\Z")

_NO_ONE = frozenset("no any every some each the this that which another such a".split())  # noqa: SIM905
_ONE_THAT = frozenset("of another who whose which that can could should would may might must has is was".split())  # noqa: SIM905
_COUNTS = frozenset("is are was were be equals to at least most exactly only just than about by and or from".split())  # noqa: SIM905

_PLAIN_FORMS = dict.fromkeys((0xA0, 0x2007, 0x2009, 0x202F), " ")
_PLAIN_FORMS |= {0x2212: "-", 0x2010: "-", 0x2011: "-", 0x2019: "'", 0xFF05: "%", 0xFF0E: ".", 0xFF0C: ",", 0xFF0D: "-"}


class Quantity(NamedTuple):
    """A value, or a text that is compared as it stands, and the name of its unit (empty for none)."""

    value: Fraction | str
    unit: str = ""


class _Found(NamedTuple):
    start: int
    end: int
    quantity: Quantity


def quantities(text: str) -> list[Quantity]:
    """The quantities of a text, in order; the rules stand above.

    Examples
    --------
    >>> [(str(value), unit) for value, unit in quantities("Give 1,000 mg (forty percent) of B12 on 2024-05-01.")]
    [('1000', 'mg'), ('40', '%'), ('b12', ''), ('2024-5-1', '')]
    """
    plain = _plain(text)
    found = list(_scan(plain))
    return [_in_context(plain, found, at) for at in range(len(found))]


def _plain(text: str) -> str:
    """The text, character for character, with one form of each digit, minus and space."""
    text = text.translate(_PLAIN_FORMS)
    if text.isascii():
        return text
    return "".join(
        str(unicodedata.decimal(one)) if not one.isascii() and unicodedata.decimal(one, None) is not None else one
        for one in text
    )


def _scan(text: str) -> Iterator[_Found]:
    position, last = 0, 0
    while match := _TOKEN.search(text, position):
        start, position = match.span()
        found = None
        match match.lastgroup:
            case "stamp" | "part":
                found = _stamp(text, match)
            case "number":
                found = _number(text, start)
            case "word":
                found = _spelled(text, match, last)
            case "name" | "code":
                found = _Found(start, position, Quantity(match[0].casefold()))
            case "address" if any(map(str.isdigit, match[0])):
                found = _Found(start, position, Quantity(match[0].casefold()))
        if found is not None:
            position = last = found.end
            yield found


def _stamp(text: str, match: re.Match[str]) -> _Found:
    shown = re.sub(r"(?<![\d.])0+(?=\d)", "", match[0])
    tail = _TAIL.match(text, match.end()) if ":" in shown else None
    if tail and tail["unit"] and not tail["scale"] and (unit := unit_named(tail["unit"])) in ("am", "pm"):
        return _Found(match.start(), tail.end(), Quantity(shown, unit))
    return _Found(match.start(), match.end(), Quantity(shown))


def _number(text: str, start: int) -> _Found | None:
    match = _NUMBER.match(text, start)
    if match is None:
        return None
    value = _value(match["digits"])
    unit, end = CURRENCIES.get(match["currency"] or "", ""), match.end()
    if match["ordinal"]:
        unit = ORDINAL
    else:
        value, unit, end = _with_tail(text, end, value, unit)
    if _LETTER_OR_DIGIT.match(text, end):  # an identifier that begins with digits: 3D, 1080p
        code = _CODE.search(text, match.start("digits"))
        return None if code is None else _Found(start, code.end(), Quantity(code[0].casefold()))
    if (match["sign"] or match["inner"] or "+") != "+" and not isinstance(value, str):
        value = -value
    return _Found(start, end, Quantity(value, unit))


def _with_tail(text: str, end: int, value: Fraction | str, unit: str) -> tuple[Fraction | str, str, int]:
    """A number with the scale and the unit behind it."""
    money = _MONEY_SCALE.match(text, end) if unit else None
    if money and money["scale"].lower() in _SHORT_SCALES and not isinstance(value, str):
        value, end = value * _SHORT_SCALES[money["scale"].lower()], money.end()
    tail = _TAIL.match(text, end)
    if tail is None:
        return value, unit, end
    if tail["scale"] and not isinstance(value, str):
        scale = tail["scale"].lower()
        value *= SCALES.get(scale) or _SHORT_SCALES[scale]
        end = tail.end("scale")
    if tail["unit"]:
        unit, end = unit or unit_named(tail["unit"]), tail.end()
    return value, unit, end


def _value(digits: str) -> Fraction | str:
    if len(digits) > _LONGEST:
        return digits
    if re.search(r"[/⁄]", digits):
        return _fraction(digits)
    if vulgar := re.search(rf"[{_VULGAR}]", digits):
        part = Fraction(unicodedata.numeric(vulgar[0])).limit_denominator(10)
        return part + int(digits[: vulgar.start()] or "0")
    plain = re.sub(r"[ ']", "", digits)
    if re.fullmatch(rf"{_DECIMAL_COMMA}", digits) or " " in digits:
        plain = plain.replace(",", ".")
    elif re.fullmatch(r"\d{1,3}(?:\.\d{3})+,\d+|\d{1,3}(?:\.\d{3}){2,}", plain):
        plain = plain.replace(".", "").replace(",", ".")
    return Fraction(plain.replace(",", ""))


def _fraction(digits: str) -> Fraction | str:
    """``1/2`` and ``2 1/2``; a text where it is no part of one."""
    *whole, parts = digits.split(" ")
    over, under = (int(part) for part in re.split("[/⁄]", parts))
    if not 0 < over < under <= 10:
        return digits
    return Fraction(over, under) + sum(map(int, whole))


def _spelled(text: str, match: re.Match[str], last: int) -> _Found | None:
    """What begins with a word."""
    start, word = match.start(), match[0].lower()
    if word in ("minus", "negative"):
        return _negative(text, match, last)
    if not begins_number(word) or (spelled := spelled_number(text, start)) is None:
        return None
    if spelled.is_ordinal:
        is_said = spelled.n_words > 1 or _is_ordinal(text, start, spelled.end)
        return _Found(start, spelled.end, Quantity(spelled.value, ORDINAL)) if is_said else None
    value, unit, end = _with_tail(text, spelled.end, spelled.value, "")
    if word == "one" and end == start + 3 and not _is_one(text, start, end):
        return None
    return _Found(start, end, Quantity(value, unit))


def _negative(text: str, match: re.Match[str], last: int) -> _Found | None:
    """Minus five; but five minus three are two numbers."""
    following = _TOKEN.match(text, match.end() + 1)
    if following is None or text[match.end()] != " " or (last and not text[last : match.start()].strip()):
        return None
    found = None
    if following.lastgroup == "number":
        found = _number(text, following.start())
    elif following.lastgroup == "word" and following[0].lower() not in ("minus", "negative"):
        found = _spelled(text, following, 0)
    if found is None or isinstance(found.quantity.value, str):
        return None
    return _Found(match.start(), found.end, Quantity(-found.quantity.value, found.quantity.unit))


_DETERMINERS = frozenset(
    {"the", "its", "his", "her", "their", "our", "my", "your", "this", "that", "whose", "every", "very"}
)


def _is_one(text: str, start: int, end: int) -> bool:
    """Whether "one" counts."""
    before = _WORD_BEFORE.search(text, max(0, start - 20), start)
    after = _WORD_AFTER.match(text, end)
    if before and before[1].lower() in _NO_ONE:
        return False
    if after is None and before is not None:
        return before[1].lower() in _COUNTS
    return after is None or after[1].lower() not in _ONE_THAT


def _is_ordinal(text: str, start: int, end: int) -> bool:
    """Whether a single ordinal word counts: not in "a second", "at first", "first opened", "Second, …"."""
    before = _WORD_BEFORE.search(text, max(0, start - 20), start)
    if text[start:end].lower() == "first" and not (before and before[1].lower() in _DETERMINERS):
        return before is None and _WORD_AFTER.match(text, end) is None  # else an adverb
    if before and before[1].lower() in ("a", "per", "each", "every", "at"):
        return False
    if _FIRST_OF_ALL.match(text, end):
        return False
    return not (text.startswith(",", end) and _OPENS.search(text, max(0, start - 20), start))


def _in_context(text: str, found: list[_Found], at: int) -> Quantity:
    """The quantity with what its neighbours say: a month, the other end of its range."""
    start, end, (value, unit) = found[at]
    if unit == ORDINAL:
        is_date = _MONTH_BEFORE.search(text, max(0, start - 20), start) or _MONTH_AFTER.match(text, end)
        return Quantity(value, "" if is_date else unit)
    if not unit and not isinstance(value, str) and at + 1 < len(found):
        following = found[at + 1]
        if _RANGE.fullmatch(text, end, following.start) and following.quantity.unit not in ("", ORDINAL):
            return Quantity(value, following.quantity.unit)
    return Quantity(value, unit)
