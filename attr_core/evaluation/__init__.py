"""Data sets to evaluate on, and what runs over them."""
