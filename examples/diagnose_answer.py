"""A wrong answer, and what misled the model: needs the packaged small model, no network."""

from attr_core import Store, diagnose, explain

documents = [
    {"id": "guide", "text": "The Aldemoor Lantern Festival opened in 1937.", "metadata": {"source": "guide.pdf"}},
    {"id": "lantern", "text": "The Aldemoor Lantern Festival opened in 1911."},
    {"id": "fees", "text": "Visitors to the Aldemoor market pay four silver marks at the gate."},
    {"id": "guild", "text": "The lamp makers of Aldemoor formed a guild."},
]
found = explain("In which year did the Aldemoor Lantern Festival open?", documents)
with Store() as store:
    trace = store.get(found.trace_id)

print(trace.answer)
print(diagnose(trace, expected="The Aldemoor Lantern Festival opened in 1911."))
