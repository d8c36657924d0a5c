"""A text -> the language whose rules about full stops fit it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict

__all__ = ["guess_language", "is_common"]

_LANGUAGES = {
    "ARABIC": "ar",
    "ARMENIAN": "hy",
    "BENGALI": "bn",
    "CJK": "zh",
    "CYRILLIC": "ru",
    "DEVANAGARI": "hi",
    "ETHIOPIC": "am",
    "GREEK": "el",
    "HANGUL": "ko",
    "HEBREW": "he",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "MYANMAR": "my",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
}
_SAMPLE = 4000
"""Characters that decide on the language."""

# Function words. A word's vote is split among the languages that have it. They need only tell whose abbreviations to
# expect, so a wrong guess costs little, and English is the answer where they are silent.
_WORDS = {
    "en": "the of and is was are were to that with for from which it its in on at as by an he she they has had not"
    " a i you we my our your his her their this these those there here then what who when where why how if or but so"
    " yes no be been have do does did will would can could may might must also both only after before since while"
    " because although however about into over under than all any some each every other another",
    "de": "der die das und ist war nicht ein eine mit von dem den auf wurde im es er sie am dann sich zu auch als für",
    "fr": "le la les des et est une dans pour qui sur avec du au était il elle là ce pas un je vous nous son sa ont",
    "es": "él ella el los las y es del por con una que fue se su está en la un lo para más pero sus cuando",
    "it": "il gli di che è della per con una nel sono era dal la un non lo ha anche alla al nella",
    "pt": "o os as e é não uma do da em foi com para são um na no por ele ela mais",
    "nl": "de het een en van is niet dat op werd met voor zijn in te er ook aan hij zij",
    "pl": "i w się nie jest na z że do to był przez oraz jak ma",
    "sv": "och att det som är på av för inte en ett var den i med till",
    "da": "og at det som er på af for ikke en et var den i med til",
    "fi": "ja on ei että oli se joka ovat mutta kuin hän sen",
    "cs": "a je se na že ve byl není to který jsou v s",
    "tr": "ve bir bu için ile olarak da de çok değil",
}
_COMMON = {language: frozenset(words.split()) for language, words in _WORDS.items()}
_VOTES: dict[str, list[str]] = {}
for _language, _words in _COMMON.items():
    for _word in _words:
        _VOTES.setdefault(_word, []).append(_language)
_LATIN_WORD = re.compile(r"[^\W\d_]+")


def is_common(word: str, language: str) -> bool:
    """Whether a word is one of the language's function words; those of a few languages are known."""
    return word.casefold() in _COMMON.get(language, ())


def guess_language(text: str) -> str:
    """The ISO 639 code that the script of most letters, or in Latin script the commonest words, suggest."""
    sample = text[:_SAMPLE]
    names = (unicodedata.name(character, "") for character in sample if character.isalpha())
    scripts = Counter(name.split("-")[0].split(" ")[0] for name in names)
    if scripts["CJK"]:  # any kana makes Han characters Japanese
        kana = scripts["HIRAGANA"] + scripts["KATAKANA"]
        scripts["HIRAGANA" if kana else "CJK"] += scripts["CJK"] if kana else 0
    most = max(scripts, key=lambda script: scripts[script], default="LATIN")
    return _LANGUAGES.get(most, "en") if most != "LATIN" else _latin_language(sample)


def _latin_language(sample: str) -> str:
    votes: dict[str, float] = defaultdict(float, {"en": 0.5})
    for word in _LATIN_WORD.findall(sample.casefold()):
        codes = _VOTES.get(word, ())
        for code in codes:
            votes[code] += 1 / len(codes)
    best = max(votes, key=lambda code: votes[code])
    return best if votes[best] >= 1 and votes[best] > votes["en"] else "en"
