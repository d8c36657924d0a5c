"""Retrieval and an answer from NVIDIA NIM through litellm; what caused the answer is measured on a small local model.

Set NVIDIA_NIM_API_KEY (a free one is at build.nvidia.com), or serve the models yourself and pass --api-base.

usage: python examples/nim_rag.py [question] [--model MODEL] [--embedding-model MODEL] [--api-base URL] [--engine SPEC]
"""

import argparse
import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else litellm fetches a price list when it is imported

import litellm
import numpy as np

from attr_core import attribute, flush_logging, with_logging
from attr_core.store import Store

DOCUMENTS = {
    "fees": "Visitors to the Aldemoor market pay four silver marks at the gate.",
    "lantern": "The Aldemoor Lantern Festival opened in 1911.",
    "torch": "The Corvath Torch Parade opened in 1937.",
    "guild": "The lamp makers of Aldemoor formed a guild.",
    "river": "The river Orr freezes in most winters.",
}
QUESTION = "In which year did the Aldemoor Lantern Festival open?"
INSTRUCTION = "Answer the question in one short sentence, using only the context."


def embedded(texts, *, input_type, model, api_base):
    """Vectors of length one; NVIDIA's retrieval models want to know whether texts are passages or a query."""
    answer = litellm.embedding(model=model, input=list(texts), input_type=input_type, api_base=api_base)
    rows = np.array([item["embedding"] for item in sorted(answer.data, key=lambda item: item["index"])])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def retrieved(question, *, model, api_base, k=4):
    """Names of the documents that are nearest to the question."""
    passages = embedded(DOCUMENTS.values(), input_type="passage", model=model, api_base=api_base)
    (query,) = embedded([question], input_type="query", model=model, api_base=api_base)
    return [list(DOCUMENTS)[n] for n in np.argsort(-(passages @ query), kind="stable")[:k]]


def answered(question, names, *, complete, model, api_base):
    """The id of the trace in which the answer is recorded."""
    context = "\n\n".join(DOCUMENTS[name] for name in names)
    response = complete(
        model=model,
        messages=[
            {"role": "system", "content": INSTRUCTION},
            {"role": "user", "content": f"Context:\n{context}\n\nQuestion: {question}"},
        ],
        documents=[{"id": name, "text": DOCUMENTS[name]} for name in names],
        temperature=0,
        max_tokens=64,
        api_base=api_base,
    )
    return response.attrkit["trace_id"]


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--model", default="nvidia_nim/meta/llama-3.1-8b-instruct")
    parser.add_argument("--embedding-model", default="nvidia_nim/nvidia/nv-embedqa-e5-v5")
    parser.add_argument("--api-base", help="of a server of your own; by default NVIDIA's")
    parser.add_argument("--engine", help="what measures; by default a small local model")
    asked = parser.parse_args(argv)

    names = retrieved(asked.question, model=asked.embedding_model, api_base=asked.api_base)
    complete = with_logging(litellm.completion)
    trace_id = answered(asked.question, names, complete=complete, model=asked.model, api_base=asked.api_base)
    flush_logging()
    with Store() as store:
        trace = store.get(trace_id)
    print(trace.answer)
    print(attribute(trace, engine=asked.engine))


if __name__ == "__main__":
    main()
