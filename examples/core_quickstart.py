"""An invented fact, a chunk that names another year, and which of them the answer came from."""

from attr_core import explain

question = "In which year did the Aldemoor Lantern Festival open?"
documents = [
    {"id": "fees", "text": "Visitors to the Aldemoor market pay four silver marks at the gate."},
    {"id": "lantern", "text": "The Aldemoor Lantern Festival opened in 1911."},
    {"id": "torch", "text": "The Corvath Torch Parade opened in 1937."},
    {"id": "guild", "text": "The lamp makers of Aldemoor formed a guild."},
]

found = explain(question, documents)
print(found)

print("closed book:", found.closed_book_answer)
