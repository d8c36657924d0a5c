"""Text of any language: characters with their offsets, sentences, phrases."""
