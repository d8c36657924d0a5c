"""How the segmenter finds documents in messages, reads a turn and cuts more finely."""
