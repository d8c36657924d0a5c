"""Output forms of results, one per file."""
