"""The positions of a query in its sources: what it has read, and what it reads next."""
