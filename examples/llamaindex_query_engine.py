"""A query engine over a vector index, on small local models; one call says what caused its answers."""

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import TextNode
from local_llm import LocalEmbedding, LocalLLM

from attr_llamaindex import instrument

NODES = [
    TextNode(text="Visitors to the Aldemoor market pay four silver marks at the gate.", id_="fees"),
    TextNode(text="The Aldemoor Lantern Festival opened in 1911.", id_="lantern"),
    TextNode(text="The Corvath Torch Parade opened in 1937.", id_="torch"),
    TextNode(text="The lamp makers of Aldemoor formed a guild.", id_="guild"),
    TextNode(text="The river Orr freezes in most winters.", id_="river"),
]

llm = LocalLLM()
index = VectorStoreIndex(NODES, embed_model=LocalEmbedding())
query_engine = index.as_query_engine(llm=llm, similarity_top_k=4)

if __name__ == "__main__":
    with instrument(engine=llm.engine) as attrkit:
        response = query_engine.query("In which year did the Aldemoor Lantern Festival open?")
        print(response)
        print(attrkit.result(response))  # waits for the thread that measures
