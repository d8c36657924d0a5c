"""The words with which answers decline; read by :func:`attr_core.support.outcome.is_refusal`, which says the rules."""

from __future__ import annotations

import re
from functools import cache, partial

__all__ = ["declines"]

_LONGEST = 2_000
"""Characters; whoever writes more has answered something."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """On first use: all of them take a tenth of a second."""
    return re.compile(pattern, re.IGNORECASE)


def _any(*patterns: str) -> str:
    return "(?:" + "|".join(patterns) + ")"


_NOT = r"(?:(?: no|n['’]?)t)"
_INFORMATION = (
    r"(?:informations?(?! (?:desk|system|tech|board|office|cent))|details?|answers?|mention|references?"
    r"|knowledge|specifics|data(?! (?:cent|plan|ware)))"
)
_ACCESS = r"access to (?:[\w-]+ ){0,3}(?:information|data|records|internet|documents?|files?|that|this|it)"
_CONTEXT = _any(
    r"contexts?|passages?|excerpts?|snippets?|chunks|search results|knowledge base|retrieved \w+",
    r"(?:provided|given|supplied|attached)(?: \w+)? (?:documents?|texts?|articles?|information|materials?|sources?)",
    r"(?:documents?|texts?|articles?|information|sources?)(?: that (?:was|were))? (?:provided|supplied|given|above)",
)
"""What nobody asks about, only answers from."""

_SOURCE = _any(_CONTEXT, r"documents?|texts?|articles?|sources?|materials?|information|question")
_TELL = r"(?:mention|specif|state|sa(?:y|id)|indicat|discuss|address|reveal|clarif|disclose|describe|answer)\w*"
_HOLD = r"(?:contain|includ|provid|giv|ha(?:ve|s)|cover|offer|list|available|found|present)\w*"

_POLITE = _any(
    r"(?:i['’]?m|i am|we['’]re|we are) (?:(?:very|so|really|terribly) )?(?:sorry|afraid)(?: to say)?",
    r"(?:(?:very|so) )?sorry|afraid|(?:my )?apologies",
    r"(?:i|we) (?:(?:do|must) )?apologi[sz]e(?: for [^,.!?\n]{1,60})?",
    r"unfortunately|regrettably|h+m+|well|oh|currently|at (?:this time|the moment|present)",
    r"thank(?:s| you)[^,.!?\n]{0,60}|please note|note|but|that|answer|(?:it )?(?:seems|appears|looks)(?: like)?",
    r"as an? [^,.!?\n]{0,40}(?:ai|model|assistant)",
    r"(?:i['’]?m|i am) (?:just |only )?an? (?:ai|language model|assistant)[^,.!?\n]{0,40}",
    r"(?:based (?:up)?on|according to|from|given|in|within|having|after|looking at)\s[^,.!?\n]{1,120},",
    r"(?:es )?tut mir (?:sehr )?leid|leider|entschuldigung|aber",
    r"(?:je suis )?désolée?|malheureusement|mais",
    r"lo siento|lamentablemente|desafortunadamente|pero",
    r"mi dispiace|purtroppo|ma",
    r"desculpe|infelizmente|lamento|sinto muito|mas",
)
_POLITE_CJK = (
    r"(?:申し訳(?:ありません|ございません)が?|すみませんが?|残念ながら|(?:很|非常)?抱歉|对不起|對不起|很遗憾|很遺憾)"
)
_OPENING = partial(_compiled, rf"[\W_]*+(?:(?:{_POLITE}(?![^\W_])|{_POLITE_CJK})[\W_]*+)*+")

_UNABLE = _any(
    rf"(?:i|we) (?:can(?:no|['’])?t|can not|could{_NOT}|won['’]?t(?: be able to)?|will not(?: be able to)?)",
    r"(?:i am|i was|i['’]m|we are|we were|we['’]re) (?:currently )?(?:not able|unable) to",
)
_ITSELF = r"(?:that|this|it|these|those)(?= (?:in|within|anywhere|from|here)\b|\W*$)"
_QUALIFIED = (
    r"(?:(?:you|an?|the|any|with|specific|legal|medical|financial|such|more|further|exact|accurate|that|this"
    r"|that kind of) ){0,4}"
)
_ENGLISH = (
    rf"{_UNABLE} (?:currently )?(?:answer|determine|comply|assist|confirm|verify|respond to|fulfil|do that)\b",
    rf"{_UNABLE} help(?: you)?(?: with| find| answer|\W*$)",
    rf"{_UNABLE} (?:find|locate|see|identify|access|tell|extract) {_ITSELF}",
    rf"{_UNABLE} (?:find|locate|see|extract) [^.!?]{{0,60}}?\b(?:{_INFORMATION}|{_CONTEXT}|documents?|sources?)\b",
    rf"{_UNABLE} (?:access|browse) (?:[\w-]+ ){{0,3}}(?:{_INFORMATION}|internet|web|records|documents?|files?)\b",
    rf"{_UNABLE} (?:say|tell)(?: you)? (?:for (?:sure|certain)|from|based on|whether|when|who|what|which|where)\b",
    (
        rf"{_UNABLE} (?:provide|give|offer|share|disclose|discuss|generate|create) {_QUALIFIED}"
        rf"(?:{_INFORMATION}|advice|assistance|guidance|instructions|help|content|diagnosis|(?:that|this)\W*$)"
    ),
    rf"(?:i|we) (?:really |honestly |simply )?do{_NOT} (?:really |actually )?know(?! (?:him|her|them|of|why)\b)\b",
    (
        rf"(?:i|we) (?:do|did){_NOT} (?:currently |actually )?(?:have|find|see|possess)(?: \w+){{0,4}}? "
        rf"(?:{_INFORMATION}|{_ACCESS}|context)\b"
    ),
    rf"(?:i|we) (?:have|found) (?:no|insufficient)(?: \w+){{0,2}}? (?:{_INFORMATION}|idea|{_ACCESS}|context)\b",
    rf"(?:i|we) lack (?:the |any |enough )?(?:\w+ )?(?:{_INFORMATION}|{_ACCESS}|context)\b",
    rf"{_UNABLE} find (?:anything|any results)\b",
    rf"i do{_NOT} think (?:that )?the (?:\w+ )?{_CONTEXT}",
    rf"(?:there(?: is|['’]s) )?nothing (?:\w+ ){{0,4}}in (?:the|this|these|your) (?:\w+ )?{_CONTEXT}\b",
    rf"(?:the|this|that) (?:\w+ ){{0,4}}(?:is|are){_NOT} (?:in|part of) (?:the|this|any of the) (?:\w+ )?{_CONTEXT}\b",
    rf"(?:the|this|your) (?:\w+ )?{_CONTEXT} (?:is|are)(?: insufficient|{_NOT} (?:sufficient|enough))\b",
    r"it(?: is|['’]s) (?:unclear|not clear) from\b",
    r"(?:i['’]?m|i am) not (?:really |entirely |quite )?(?:sure|certain|familiar with|comfortable)\b(?!-)",
    r"(?:i|we) (?:must |have to |need to |will |prefer to |respectfully )?decline (?:to|this|that|your)\b",
    r"i(?:['’]d| would) rather not\b",
    rf"(?:i|we) (?:would )?(?:need|require) (?:more|additional|further) (?:\w+ )?(?:{_INFORMATION}|context)\b",
    r"(?:could|can) you (?:please )?(?:clarify|rephrase|specify|provide more|give me more)\b",
    r"(?:this|the|your) question (?:can(?:no|['’])t|can not|could not) be answered\b",
    r"(?:it|this|that|the answer) (?:can(?:no|['’])t|can not|could not) be (?:determined|answered|found)\b",
    r"it(?: is|['’]s) (?:not possible|impossible) to (?:determine|answer|say|tell|know)\b(?! no\b)",
    rf"(?:there(?: is|['’]s| are) )?(?:not enough|insufficient) (?:{_INFORMATION}|context)\b",
    rf"there (?:is|are){_NOT} (?:enough|sufficient|any) (?:\w+ )?(?:{_INFORMATION}|context)\b",
    (
        r"no (?:\w+ ){0,2}(?:information|answers?|results|documents?|passages?|context)"
        r"(?: (?:about|on|for|regarding|to|in) [^.!?]{1,80}?)? (?:is|was|were|are|could be|can be) "
        r"(?:found|available|provided|given|retrieved|present)\b(?! (?:by|to)\b)"
    ),
    r"there(?: is|['’]s| was) no (?:\w+ ){0,2}information (?:available|provided|given|about|on|regarding|in)\b",
)
_GERMAN = (
    r"ich wei(?:ß|ss) (?:es |das |die antwort |leider )*nicht",
    r"(?:ich kann|kann ich) [^.!?]{0,60}\bnicht (?:beantworten|finden|helfen|sagen|weiterhelfen)",
    (
        r"(?:dazu |darüber |hierzu )?(?:habe ich|ich habe|liegen|gibt es|finde ich)[^.!?]{0,40}\bkeine (?:\w+ )?"
        r"(?:informationen|angaben)"
    ),
    r"keine (?:ausreichenden )?(?:informationen|angaben)",
    (
        r"(?:der|die|das|dem|den|im|in) [^.!?]{0,40}(?:kontext|text|dokument|quelle|auszug|auszüge)\w*\b[^.!?]{0,60}"
        r"(?:keine (?:informationen|angaben|hinweise)|nicht (?:erwähnt|genannt|angegeben|enthalten))"
    ),
    r"das geht [^.!?]{0,50}nicht hervor",
)
_FRENCH = (
    r"je ne sais pas",
    r"je ne (?:peux|suis) pas (?:répondre|vous aider|fournir|trouver|en mesure)",
    r"je n['’]ai pas (?:trouvé|accès|d['’]informations?|assez d['’]|suffisamment d['’])",
    r"je ne (?:trouve|dispose) pas",
    r"aucune information",
    (
        r"(?:le|la|les|ces?) (?:contexte|texte|documents?|passages?|sources?|extraits?)\b[^.!?]{0,40} ne "
        r"(?:mentionne|précise|contien|fourni|indique|donne)\w* (?:pas|aucune?)"
    ),
)
_SPANISH = (
    r"no (?:lo )?sé\b(?! si no)",
    r"no (?:puedo|es posible) (?:responder|ayudar|encontrar|proporcionar|determinar)",
    r"no (?:tengo|encuentro|encontré|hay|dispongo de|cuento con)(?: \w+){0,2} información",
    r"el (?:contexto|texto|documento)\b[^.!?]{0,40} no (?:menciona|especifica|contiene|proporciona|indica)",
)
_ITALIAN = (
    r"non (?:lo )?so\b",
    r"non (?:posso|sono in grado di|riesco a) (?:rispondere|aiutar|trovare|fornire|determinare)",
    r"non (?:ho|trovo|dispongo di|ci sono)(?: \w+){0,2} informazioni",
    r"il (?:contesto|testo|documento)\b[^.!?]{0,40} non (?:menziona|specifica|contiene|fornisce|indica)",
)
_PORTUGUESE = (
    r"(?:eu )?não sei\b",
    r"(?:eu )?não (?:posso|consigo|é possível) (?:responder|ajudar|encontrar|fornecer|determinar)",
    r"(?:eu )?não (?:tenho|encontrei|há|disponho de)(?: \w+){0,2} informaç",
    r"o (?:contexto|texto|documento)\b[^.!?]{0,40} não (?:menciona|especifica|contém|fornece|informa|indica)",
)
_JAPANESE = (
    r"[^。.!?]{0,60}?(?:わかりません|分かりません|存じません|お答えできません|回答できません|答えられません)[。.!！]?$",
    (
        r"[^。.!?]{0,60}?(?:情報|記載|記述|言及|回答|答え)[はがも][^。.!?]{0,12}"
        r"(?:ありません|見つかりません|含まれていません|ございません)(?:でした)?[。.!！]?$"
    ),
)
_CHINESE = (
    r"(?:我们?|我們)?(?:不知道|不清楚)(?:答案)?[。.!！]?$",
    r"(?:我们?|我們)?(?:无法|無法|不能)(?:回答|确定|確定|提供|找到|得知)",
    r"(?:我们?|我們)?(?:没有|沒有|未)(?:找到|足够|足夠|相关|相關)[^。]{0,12}(?:信息|資訊|资料|資料)",
    (
        r"(?:根据|根據)?(?:上下文|文档|文檔|文本|资料|資料|文中|提供的)[^。]{0,20}(?:没有|沒有|未|并未|並未)"
        r"(?:提及|提到|说明|說明|包含|提供|给出|給出|涉及)"
    ),
)
_DECLINES = partial(
    _compiled, _any(*_ENGLISH, *_GERMAN, *_FRENCH, *_SPANISH, *_ITALIAN, *_PORTUGUESE, *_JAPANESE, *_CHINESE)
)
_BARE = partial(
    _compiled,
    _any(
        r"unknown|n/?a|idk|no idea|unanswerable|none (?:given|stated|mentioned)",
        r"not (?:known|stated|specified|mentioned|given|available|found|sure|provided|applicable)",
        r"no (?:answer|information(?: (?:available|found|provided))?)",
        r"(?:can(?:no|['’])?t|can not|unable to) (?:answer|determine|say|be determined)(?: that| this)?",
        rf"not (?:specified |mentioned |stated |given |provided |found )?in (?:the )?{_SOURCE}",
        r"keine angaben?|unbekannt|inconnu|desconocido|不明|未知",
    )
    + r"\W*",
)
_MANNER = r"(?:(?:explicitly|directly|specifically|actually|clearly|even|seem to|appear to) ){0,2}"
_ABSENT = partial(
    _compiled,
    rf"(?:the|this|that|these|those|your|my|any)\b[^.!?]{{0,60}}?\b(?:(?P<context>{_CONTEXT})|{_SOURCE})\b"
    rf"[^.!?]{{0,60}}?\b(?:do|does|did){_NOT} {_MANNER}(?:(?P<tells>{_TELL})|{_HOLD})",
)
_NONE_OF = partial(
    _compiled,
    rf"(?:none|neither) of (?:the|these|those|your) [^.!?]{{0,40}}?\b{_SOURCE}\b[^.!?]{{0,40}}? (?:{_TELL}|{_HOLD})",
)
_PASSIVE = partial(
    _compiled,
    rf"(?!no\b|yes\b)[^.!?]{{0,120}}?\b(?:(?:is|are|was|were|has|have){_NOT}|it['’]s not)(?: been)? {_MANNER}"
    rf"(?:(?P<tells>{_TELL})|{_HOLD})(?:(?P<ends>\W*$)|(?P<there>(?: \w+){{0,3}}? (?:in|within|by|from) "
    rf"(?:the|this|these|your|any) [^.!?]{{0,30}}?\b(?:(?P<context>{_CONTEXT})|{_SOURCE}))\b)?",
)
_NO_MENTION = partial(_compiled, rf"there(?: is|['’]s| are| was) no (?:\w+ ){{0,2}}(?:{_INFORMATION}|indication)\b")
_IS_OF_SOURCE = partial(_compiled, rf"\b{_SOURCE}\b")
_IS_OF_INFORMATION = partial(_compiled, rf"\b{_INFORMATION}\b|\bthe (?:exact|specific|precise)\b")

_OFFER = _any(
    r"if you|(?:please )?feel free|please|let me|(?:i|we)(?:['’]d| would|['’]m| am)? (?:be )?(?:happy|glad|here)",
    r"(?:i|we) (?:can|could) (?:help|assist|try)|(?:it|they|these|the \w+) (?:only|merely) ",
    r"you (?:can|may|could|might)(?: want to| try to)? (?:check|try|contact|consult|refer|visit|look|ask|search|find)",
)
_YET = partial(
    _compiled,
    r"(?:\b(?:but|however|though|although|nevertheless|nonetheless|that(?: being)? said|my best guess|aber|jedoch"
    r"|allerdings|mais|cependant|pero|sin embargo|tuttavia|porém|no entanto)\b"
    r"|しかし|ただし|ですが|ませんが|但|不过|然而)"
    rf"(?!,? {_OFFER})",
)
_IN_PART = partial(_compiled, r"\b(?:exact(?:ly)?|precise(?:ly)?|for (?:certain|sure)|entirely|explicitly)\b")
_QUOTES = frozenset("\"“”„«»‘’'")
_ELSEWHERE = partial(_compiled, r"(?: \w+){0,2}? (?:in|within|by|on|at)\b")
_BLANKS = partial(_compiled, r"[^\S\n]+")
_END = partial(_compiled, r"(?<=[.!?])\s|(?<=[。！？])|\n")


def declines(answer: str) -> bool:
    """Whether an answer begins with words that decline, and says nothing all the same."""
    text = _BLANKS().sub(" ", answer).strip() if len(answer) <= 2 * _LONGEST else ""
    is_quoted = text[:1] in _QUOTES and text[-1:] not in _QUOTES  # "I do not know," said the mayor.
    if not text or len(text) > _LONGEST or is_quoted:
        return False
    opening = _OPENING().match(text)
    begins = 0 if opening is None else opening.end()
    end = _END().search(text, begins)
    stops = len(text) if end is None else end.start()
    said = text[begins:stops].strip()
    if not (_DECLINES().match(said) or _BARE().fullmatch(said) or _says_nothing(said, text[:stops])):
        return False
    if _IN_PART().search(text, 0, stops) and text[stops:].strip():
        return False
    return _YET().search(text, begins) is None


def _says_nothing(said: str, sentence: str) -> bool:
    """Whether it is said of the context, and not of the matter, that it does not tell; ``said`` is the core."""
    is_of_information = _IS_OF_INFORMATION().search(said) is not None
    if _NONE_OF().match(said):
        return True
    if absent := _ABSENT().match(said):
        return bool(absent["context"] or absent["tells"]) or is_of_information
    if not _IS_OF_SOURCE().search(sentence):
        return False
    passive = _PASSIVE().match(said)
    if passive is None:
        return _NO_MENTION().match(said) is not None
    is_introduced = _IS_OF_SOURCE().search(sentence.removesuffix(said)) is not None  # "According to the text, …"
    if passive["tells"]:
        goes_on = _ELSEWHERE().match(said, passive.end())  # "… is not mentioned in the will"
        return bool(passive["there"]) or (is_introduced and goes_on is None)
    return bool(passive["context"] or (is_of_information and (passive["there"] or passive["ends"])))
