"""The one SQLite file under the store and the cache."""
