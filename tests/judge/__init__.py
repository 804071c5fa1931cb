"""Real Spark as the judge: it writes checkpoints, goes on with them, and says what came out.

A test tells a story in four lines::

    checkpoint = judge.write(Query("agg_update", codec="zstd"), batches, layout="both")
    ...                                                  # whatever is to be judged
    checkpoint.expected.drop(expired("value.max", limit))   # what it claims to have done
    assert judge.restart(checkpoint, more) == checkpoint.expected.run(more)

``queries``   what can be run: settings and operators, by name
``runs``      one run of a query, inside a Spark session
``layouts``   which state files lie on disk, without Spark
``server``    the long-lived process that holds one Spark session (one per Spark version)
``processes`` those servers, seen from the tests
``spark``     the tests' side: ``Judge`` and its verbs
``outcomes``  what came out, in a shape that compares
``model``     the same queries in plain Python, for what ought to come out

``queries``, ``runs``, ``layouts`` and ``server`` run under every Spark version's own interpreter, so they
import neither ttlsnap nor pytest, and PySpark only where a session exists.
"""
