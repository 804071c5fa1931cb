"""Why ``compact`` keeps, drops or rewrites the entries of a key."""
