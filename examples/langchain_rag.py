"""A chain that retrieves, writes a prompt and asks a small local model; a handler says what caused the answer."""

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough
from local_chat_model import LocalChatModel
from sklearn.feature_extraction.text import TfidfVectorizer

from attr_langchain import AttributionCallbackHandler

DOCUMENTS = [
    Document("Visitors to the Aldemoor market pay four silver marks at the gate.", metadata={"source": "fees.md"}),
    Document("The Aldemoor Lantern Festival opened in 1911.", id="lantern", metadata={"source": "festivals.md"}),
    Document("The Corvath Torch Parade opened in 1937.", id="torch", metadata={"source": "festivals.md"}),
    Document("The lamp makers of Aldemoor formed a guild.", id="guild", metadata={"source": "guilds.md"}),
    Document("The river Orr freezes in most winters.", id="river", metadata={"source": "rivers.md"}),
]


class TfidfRetriever(BaseRetriever):
    """The documents that share the rarest words with the question."""

    documents: list[Document]
    k: int = 4

    def _get_relevant_documents(self, query, *, run_manager):
        words = TfidfVectorizer().fit([document.page_content for document in self.documents])
        texts = words.transform([document.page_content for document in self.documents])
        scores = (texts @ words.transform([query]).T).toarray().ravel()
        best = sorted(range(len(scores)), key=lambda i: -scores[i])[: self.k]
        return [self.documents[i] for i in best]


def joined(documents):
    return "\n\n".join(document.page_content for document in documents)


model = LocalChatModel()
prompt = ChatPromptTemplate.from_messages(
    [
        ("system", "Answer the question in one short sentence, using only the context."),
        ("human", "Context:\n{context}\n\nQuestion: {question}"),
    ]
)
retriever = TfidfRetriever(documents=DOCUMENTS)
chain = {"context": retriever | joined, "question": RunnablePassthrough()} | prompt | model | StrOutputParser()

if __name__ == "__main__":
    with AttributionCallbackHandler(engine=model.engine) as handler:
        answer = chain.invoke("In which year did the Aldemoor Lantern Festival open?", config={"callbacks": [handler]})
        print(answer)
        print(handler.last())  # waits for the thread that measures
