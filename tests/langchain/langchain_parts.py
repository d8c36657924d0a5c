"""Chains and agents of LangChain's own parts; only what a model says is scripted."""

import json

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models.fake_chat_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore

DOCUMENTS = (
    Document("The fair opened in 1911.", id="lantern", metadata={"source": "fairs.md", "page": 3}),
    Document("The parade opened in 1937.", id="torch", metadata={"source": "parades.md"}),
    Document("The market charges four marks.", id="fees", metadata={"source": "fairs.md"}),
)


class ScriptedChatModel(GenericFakeChatModel):
    """LangChain's scripted model, which can also be given tools and streams its tool calls."""

    def bind_tools(self, tools, **kwargs):
        return self.bind(tools=[{"type": "function", "function": {"name": tool.name}} for tool in tools], **kwargs)

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        message = next(self.messages)
        calls = [
            {"name": call["name"], "args": json.dumps(call["args"]), "id": call["id"], "index": index}
            for index, call in enumerate(message.tool_calls)
        ]
        words = message.content.split(" ")
        for index, word in enumerate(words):
            is_last = index == len(words) - 1
            yield ChatGenerationChunk(
                message=AIMessageChunk(
                    content=word if is_last else f"{word} ",
                    tool_call_chunks=calls if index == 0 else [],
                )
            )


def scripted(*messages):
    return ScriptedChatModel(messages=iter([m if isinstance(m, AIMessage) else AIMessage(m) for m in messages]))


def asks(*calls, text=""):
    """A message of the model that calls tools: ``("search", {"query": "fair"}, "c1")``, ..."""
    return AIMessage(text, tool_calls=[{"name": name, "args": args, "id": id_} for name, args, id_ in calls])


def joined(documents):
    return "\n\n".join(document.page_content for document in documents)


def retriever(documents=DOCUMENTS):
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=16))
    store.add_documents(list(documents))
    return store.as_retriever(search_kwargs={"k": len(documents)})


PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "Answer from this context:\n{context}"),
        MessagesPlaceholder("history", optional=True),
        ("human", "{question}"),
    ]
)


def rag(model=None, *, find=None, parse=True):
    """Retrieve, write the prompt, ask, parse."""
    model = model or FakeListChatModel(responses=["It opened in 1911."])
    chain = {"context": (find or retriever()) | RunnableLambda(joined), "question": RunnablePassthrough()}
    return chain | PROMPT | model | StrOutputParser() if parse else chain | PROMPT | model


def echoing():
    """Finds one document that repeats the question, and answers with the whole prompt: each run has its own data."""
    find = RunnableLambda(lambda question: [Document(f"about {question}", id=f"d-{question}")])
    say = RunnableLambda(lambda prompt: AIMessage(" | ".join(m.content for m in prompt.to_messages())))
    return find, say
