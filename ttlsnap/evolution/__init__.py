"""Schema evolution: entries of an old schema in a new one. ``ttlsnap.repairs`` finds how."""
