"""A model of publishing, explored exhaustively: every interleaving of ttlsnap, Spark, an operator and crashes.

``disk``        the checkpoint as a map of paths, and functions that read it
``world``       the parts of a world, the rules of the protocol, the assumptions, and the bounds
``commands``    ttlsnap's commands, step by step
``spark``       a query, its maintenance, and an operator
``invariants``  the conditions that hold in every world
``model``       the steps that are possible in a world
``explore``     the breadth-first explorer, which returns the shortest trace to a violation
``tracing``     the steps that real runs take, which are compared with those of the model

See "The model" in ``docs/protocol.md``.
"""
