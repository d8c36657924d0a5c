"""A pipeline that retrieves, writes a prompt and asks a small local model; a component says what caused the answer."""

from haystack import Document, Pipeline
from haystack.components.builders import ChatPromptBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
from local_generator import LocalChatGenerator

from attr_haystack import AttributionComponent

ENGINE = "hf:SmolLM2-135M-Instruct.Q4_1.gguf"
DOCUMENTS = [
    Document(
        id="fees",
        content="Visitors to the Aldemoor market pay four silver marks at the gate.",
        meta={"file_path": "fees.md"},
    ),
    Document(id="lantern", content="The Aldemoor Lantern Festival opened in 1911.", meta={"file_path": "festivals.md"}),
    Document(id="torch", content="The Corvath Torch Parade opened in 1937.", meta={"file_path": "festivals.md"}),
    Document(id="guild", content="The lamp makers of Aldemoor formed a guild.", meta={"file_path": "guilds.md"}),
    Document(id="river", content="The river Orr freezes in most winters.", meta={"file_path": "rivers.md"}),
]
TEMPLATE = [
    ChatMessage.from_system("Answer the question in one short sentence, using only the context."),
    ChatMessage.from_user(
        "Context:\n{% for document in documents %}{{ document.content }}\n\n{% endfor %}Question: {{ question }}"
    ),
]

store = InMemoryDocumentStore()
store.write_documents(DOCUMENTS)

pipeline = Pipeline()
pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=4))
pipeline.add_component("prompt", ChatPromptBuilder(TEMPLATE))
pipeline.add_component("llm", LocalChatGenerator(ENGINE))
pipeline.add_component("attribution", AttributionComponent(ENGINE))
pipeline.connect("retriever.documents", "prompt.documents")
pipeline.connect("prompt.prompt", "llm.messages")
pipeline.connect("prompt.prompt", "attribution.messages")
pipeline.connect("llm.replies", "attribution.replies")
pipeline.connect("retriever.documents", "attribution.documents")

if __name__ == "__main__":
    question = "In which year did the Aldemoor Lantern Festival open?"
    inputs = {
        "retriever": {"query": question},
        "prompt": {"question": question},
        "attribution": {"query": question},
    }
    found = pipeline.run(inputs)["attribution"]
    print(found["replies"][0].text)
    for claim in found["attribution"]["claims"]:
        for target in claim["targets"]:
            causes = [f"{cause['verdict']} {cause['segment']} {cause['effect']:+.1f}" for cause in target["causes"]]
            print(f"{target['text']!r}: {', '.join(causes) or 'no single cause'}")
    for document in found["documents"]:
        score = document.meta["attrkit"]
        print(f"{document.id}: {score['effect']:+.1f} {score['unit']} on {score['target']!r}, {score['verdict']}")
