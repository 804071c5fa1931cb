"""The transaction of a run, and its rollback."""
