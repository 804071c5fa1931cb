"""Real Spark as the judge: it writes checkpoints, restarts queries on them, and returns their output and state.

Most tests have four steps::

    checkpoint = judge.write(Query("agg_update", codec="zstd"), batches, layout="both")
    ...                                                  # the operation under test
    checkpoint.expected.drop(expired("value.max", limit))   # the effect that it claims
    assert judge.restart(checkpoint, more) == checkpoint.expected.run(more)

``queries``   the queries: settings, and operators by name
``runs``      one run of a query, inside a Spark session
``layouts``   the state files on disk, without Spark
``server``    the long-lived process that holds one Spark session (one for each Spark version)
``processes`` the tests' handle of those servers
``spark``     the tests' interface: ``Judge`` and its methods
``outcomes``  output and state, in a form that can be compared
``model``     the same queries in plain Python, which compute the expected output and state

``queries``, ``runs``, ``layouts`` and ``server`` run under the interpreter of each Spark version. They therefore do not
import ttlsnap or pytest, and import PySpark only where a session exists.
"""
