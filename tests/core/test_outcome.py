"""What answers amount to: refusals are told by their words, the rest by one table of a judge's verdicts."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attr_core.outcomes import Outcome
from attr_core.results import Support, SupportVerdict
from attr_core.support.outcome import Standard, is_refusal, outcomes
from attr_core.testing import ScriptedJudge
from attr_core.types import Claim, Segment

REFUSALS = """
I'm sorry, I can't find that.
I’m sorry, but I can’t find that information in the documents.
I am sorry, I do not know.
Sorry, I don't know.
I don't know.
I do not know the answer to that question.
We do not know.
I'm not sure.
I'm not sure when the fair opened.
I cannot answer this question.
I can't answer that.
I cannot answer based on the provided context.
I could not find an answer in the documents.
I couldn't find any information about the fair.
I was unable to find any mention of the fair in the context.
I'm unable to determine when the fair opened.
I am not able to answer this.
I don't have enough information to answer.
I don't have that information.
I do not have access to that information.
I don't have any details about the price.
I don't see any mention of that in the passages.
I did not find any information on this.
I have no information about this.
I have insufficient information to answer the question.
I can't help with that.
I'm sorry, but I can't assist with that request.
I cannot provide medical advice.
I can't provide that information.
I won't be able to answer that.
I must decline to answer.
I'd rather not answer that.
As an AI language model, I cannot access real-time data or answer this.
As an AI, I don't have access to personal records.
Unfortunately, I don't have enough context to answer your question.
Unfortunately, the provided context does not mention the opening date.
Unfortunately, there is no information about that in the text.
The context does not mention it.
The context doesn't say.
The context provided does not contain information about the fair.
The provided documents do not specify the price.
The text does not state when the fair opened.
The passage doesn't mention who built the tower.
The documents do not contain any information about the opening date.
The given information does not include the opening year.
None of the documents mention the fair.
None of the provided passages contain the answer.
The opening date is not mentioned in the context.
The price is not specified in the provided text.
The answer is not given in the passage.
The information is not available in the provided documents.
There is no mention of the fair in the context.
There is no information about the fair.
There isn't enough information to answer this question.
There is not enough information in the context.
No relevant information was found.
No information about the fair is provided.
Based on the provided context, I cannot determine when the fair opened.
Based on the given documents, there is no information about the price.
According to the context, the opening date is not specified.
From the information provided, it is not possible to determine the year.
It is not possible to say from the text.
It cannot be determined from the context.
This question cannot be answered from the given sources.
Not enough information.
Insufficient information.
Insufficient context to answer.
Unknown.
unknown
N/A
n/a.
**Unknown**
Answer: Unknown
Not specified.
Not mentioned in the context.
Not stated
Not found.
No answer.
Cannot determine.
Unanswerable
I apologize, but I couldn't find that in the context.
I apologize for the inconvenience, but I can't find any information on that.
I'm sorry. I cannot answer that question.
Thank you for your question! Unfortunately, I don't know the answer.
Could you please clarify your question?
I need more information to answer that.
It seems the documents don't mention a price.
I cannot find this in the context, but I'd be happy to help with something else.
I'm afraid I don't know.
The context only covers tickets, and the text does not mention the year.
I don't know. Please contact the office.
Sorry, but I couldn't find anything about this in the handbook.
I have no knowledge of that event.
The answer is not in the context.
We couldn't find any results.
The provided context is insufficient to answer the question.
The context is not sufficient to answer this.
Nothing in the context mentions this.
There is nothing about this in the context.
It's unclear from the context.
That information is not provided in the context.
I cannot find that in the documents. They only discuss ticket prices.
""".strip().splitlines()

ANSWERS = """
The fair opened in 1911.
1911
1911.
In 1911.
No.
Yes.
None.
No one knows who built the tower.
The fair did not open in 1911.
The fair didn't open in 1911; it opened in 1912.
No, the document was not signed.
No, the contract does not mention a notice period.
The document was not signed.
The contract is not valid.
The company does not provide dental insurance.
We do not provide dental insurance.
We don't offer refunds after 30 days.
We cannot provide refunds after 30 days.
We do not have a store in Berlin.
I can't recommend it enough: it is great
I can't help but admire the tower.
I couldn't see the sea from the tower.
I do not have to pay.
I don't see any reason to sell.
I did not say that.
I didn't know him well.
I can't say no to a friend.
I can't tell you how happy I am.
I can't find it funny.
Unfortunately, the shop closed in 1911.
Sorry, the shop is closed on Mondays.
I'm sorry to say the fair was cancelled.
I'm afraid that the fair did not open in 1911.
I'm sorry, the fair did not open in 1911.
The text states that the fair did not open in 1911.
The text is not about the fair; it is about the tower.
The context says the fair opened in 1911.
The document does not contain a signature.
The documents were not found by the police until 1950.
The document is not available in French.
The information desk is not open on Mondays.
The question was not on the ballot.
The source of the river was not found until 1858.
According to the document, lunch is not provided.
According to the document, the fee is not included.
According to the text, the fair was not held in 1912.
Based on the context, the fair opened in 1911.
There is no charge for children.
There is no evidence that the tower leans.
There are no documents to sign.
There is no need to bring documents.
There was no fair in 1912.
It is not possible to cancel after 30 days.
It is not known who built the tower.
No documents were signed.
No information is shared with third parties.
No refunds are given.
Information about your account is never sold.
The unknown soldier was buried in 1920.
Unknown Pleasures was released in 1979.
Not in 1911 but in 1912.
Not mentioned by name, she is the baker's daughter.
I don't know the exact date, but it opened in 1911.
I don't know the exact day. It opened in 1911.
I'm not sure, but I think it opened in 1911.
The context does not mention the price, but the fair opened in 1911.
The context does not give a day; however, it says that the fair opened in 1911.
The context doesn't explicitly say. It describes an opening in the summer of 1911.
I couldn't find the exact date. However, the fair opened in the summer of 1911.
The documents do not mention the price, though they say that it opened in 1911.
While the context does not mention the price, it says that the fair opened in 1911.
Mr. Unable answered in 1911.
The model cannot answer questions about images.
You cannot answer after the deadline.
They don't know who won.
The police do not know who did it.
Sorry is a song by Justin Bieber.
To decline a noun is to inflect it.
{"error": "not found"}
{"answer": null}
{"tool": "search", "arguments": {"query": "I don't know"}}
[]
404
def answer(): return None
Applicants must provide more information.
We do not have data centers in Berlin.
We do not have access to the roof.
No information was given by the police.
Information on salaries is not available to the public.
The documents are not discussed in public.
The sources of the Nile were not found until 1858.
I don't know him.
I am not sure-footed on ice.
The information system does not provide backups.
There is no information desk at the station.
It is impossible to say no to her.
According to the context, the tower is not mentioned in the will.
According to the context, dental care is not covered.
We found no evidence of fraud.
The policy does not cover dental care.
I cannot access the roof because it is locked.
There is no answer that fits all: it depends on the year.
It is not included in the price.
According to the passage, the tower is not open to the public.
The material is not present in the soil.
He said that he could not answer the question.
"I don't know," said the mayor when asked about the fair.
Please provide your passport at the desk.
""".strip().splitlines()

FOREIGN_REFUSALS = """
Ich weiß es nicht.
Das weiß ich leider nicht, der Kontext enthält keine Informationen dazu.
Leider kann ich diese Frage nicht beantworten.
Es tut mir leid, ich kann diese Frage nicht beantworten.
Dazu liegen keine Informationen vor.
Im Kontext wird das Datum nicht erwähnt.
Der Text enthält keine Angaben zum Preis.
Je ne sais pas.
Désolé, je ne peux pas répondre à cette question.
Le contexte ne mentionne pas la date d'ouverture.
Je n'ai pas trouvé d'informations à ce sujet.
No lo sé.
Lo siento, no puedo responder a esa pregunta.
El contexto no menciona la fecha.
No tengo suficiente información para responder.
Non lo so.
Mi dispiace, non posso rispondere a questa domanda.
Il testo non specifica la data.
Não sei.
Desculpe, não posso responder a essa pergunta.
O texto não menciona a data.
わかりません。
申し訳ありませんが、その質問にはお答えできません。
提供された文書には開館日に関する情報はありません。
我不知道。
抱歉，我无法回答这个问题。
根据提供的上下文，没有提及开放日期。
文中未提及开放时间。
""".strip().splitlines()

FOREIGN_ANSWERS = """
Die Messe wurde nicht 1911 eröffnet.
Ich kann das Buch nicht empfehlen.
Der Text ist nicht von Goethe.
Leider wurde das Geschäft 1911 geschlossen.
La foire n'a pas ouvert en 1911.
Le document n'est pas signé.
No, la feria no abrió en 1911.
No se sabe quién construyó la torre.
El documento no está firmado.
Non è stato firmato.
Non solo nel 1911.
Não, a feira não abriu em 1911.
博覧会は1911年には開かれませんでした。
癌は見つかりませんでした。
展览会没有在1911年开幕。
不能退款。
""".strip().splitlines()


@pytest.mark.parametrize("answer", [*REFUSALS, *FOREIGN_REFUSALS])
def test_an_answer_that_declines_is_a_refusal(answer: str) -> None:
    assert is_refusal(answer)


@pytest.mark.parametrize("answer", [*ANSWERS, *FOREIGN_ANSWERS])
def test_a_denial_or_a_partial_answer_is_an_answer(answer: str) -> None:
    assert not is_refusal(answer)


def test_the_tables_are_as_long_as_they_should_be() -> None:
    assert min(len(REFUSALS), len(ANSWERS)) >= 60


@pytest.mark.parametrize("answer", ["", " \n", "*", "。", "Sorry, " * 200, "but " * 400])
def test_what_says_nothing_at_all_is_no_refusal(answer: str) -> None:
    assert not is_refusal(answer)


def test_a_long_answer_is_one_however_it_begins() -> None:
    assert not is_refusal("I don't know. " + "The fair opened in 1911. " * 100)


@pytest.mark.parametrize(
    "piece", ["a", " ", "\n", "sorry ", "the context ", "I can't ", "not ", "In the text, ", "!", "(", "没有", "\u00a0"]
)
@pytest.mark.parametrize("length", [1_990, 100_000])
def test_time_does_not_depend_on_what_stands_there(piece: str, length: int) -> None:
    started = time.perf_counter()
    is_refusal((piece * length)[:length])
    is_refusal("the context does not " + (piece * length)[:length])
    assert time.perf_counter() - started < 0.5


@given(st.text(max_size=300))
def test_no_text_makes_it_fail(answer: str) -> None:
    assert is_refusal(answer) in (True, False)


RIGHT, PART, WRONG, OTHER = "It opened in 1911 in Kiel.", "It opened in 1911.", "It opened in 1912.", "It rained."
REFUSED, UNSURE = "I don't know.", "It may have opened then."
YEAR, PLACE = (Claim(n, 0, len(text), text) for n, text in enumerate(("The fair opened in 1911.", "It was in Kiel.")))
VERDICTS = {
    (YEAR.text, RIGHT): SupportVerdict.ENTAILS,
    (PLACE.text, RIGHT): SupportVerdict.ENTAILS,
    (YEAR.text, PART): SupportVerdict.ENTAILS,
    (YEAR.text, WRONG): SupportVerdict.CONTRADICTS,
    (YEAR.text, UNSURE): SupportVerdict.UNDETERMINED,
}


class CountingJudge(ScriptedJudge):
    """Keeps the texts that it was asked about."""

    def judge(self, claims: Sequence[Claim], segments: Sequence[Segment], *, question: str | None = None) -> Support:
        seen.append(([claim.text for claim in claims], [segment.text for segment in segments], question))
        return super().judge(claims, segments, question=question)


seen: list[tuple[list[str], list[str], str | None]] = []


@pytest.fixture
def judge() -> CountingJudge:
    seen.clear()
    return CountingJudge(VERDICTS)


def test_many_answers_are_judged_in_one_call_and_each_gets_its_own_outcome(judge: CountingJudge) -> None:
    texts = [RIGHT, PART, WRONG, OTHER, REFUSED, UNSURE, "", RIGHT]
    found, _ = outcomes(judge, Standard(wanted=(YEAR, PLACE), question="When and where?"), texts)
    right, incomplete, wrong = Outcome.RIGHT, Outcome.INCOMPLETE, Outcome.WRONG
    refused, undetermined = Outcome.REFUSED, Outcome.UNDETERMINED
    assert found == (right, incomplete, wrong, wrong, refused, undetermined, refused, right)
    assert judge.calls == 1
    assert seen == [([YEAR.text, PLACE.text], [RIGHT, PART, WRONG, OTHER, UNSURE], "When and where?")]


def test_a_contradiction_makes_an_answer_wrong_even_where_another_verdict_is_missing(judge: CountingJudge) -> None:
    judge.verdicts = {**VERDICTS, (PLACE.text, WRONG): SupportVerdict.UNDETERMINED}
    assert outcomes(judge, Standard(wanted=(YEAR, PLACE)), [WRONG])[0] == (Outcome.WRONG,)


def test_where_nothing_is_expected_an_answer_has_changed_or_still_says_what_was_at_issue(judge: CountingJudge) -> None:
    found, _ = outcomes(judge, Standard(unwanted=(YEAR,)), [PART, WRONG, OTHER, UNSURE, REFUSED])
    assert found == (Outcome.WRONG, Outcome.CHANGED, Outcome.CHANGED, Outcome.UNDETERMINED, Outcome.REFUSED)


def test_refusals_alone_cost_no_call(judge: CountingJudge) -> None:
    found, cost = outcomes(judge, Standard(wanted=(YEAR,)), [REFUSED, "", REFUSED])
    assert (found, cost.calls, judge.calls) == ((Outcome.REFUSED,) * 3, 0, 0)


def test_without_a_standard_nothing_can_be_said(judge: CountingJudge) -> None:
    assert outcomes(judge, Standard(), [RIGHT, REFUSED])[0] == (Outcome.UNDETERMINED, Outcome.REFUSED)
    assert judge.calls == 0
