"""Observations of real Spark: a changed streaming query restarts on the state of the old one.

``queries``    queries built from parts that a change can touch, each with a model in plain Python
``processors`` queries whose state is kept by Python code
``pair``       a pair: an old and a changed query, the events before and after the restart, and the right rows
``pairs``      all pairs. They are defined in ``aggregations``, ``deduplications``, ``joins``, ``operators``,
               ``processing``, ``settings``, ``versions``, ``ways`` and ``harmless``
``effects``    checks of a checkpoint for the effect of a changed setting
``attempts``   one run of one side of a pair, inside a Spark session
``observe``    a program that runs pairs: ``python -m tests.check.observe`` writes ``observed.json``

The interpreters of all Spark versions (3.5 to 4.2) load all modules but ``observe``. So these import neither ttlsnap
nor pytest.
"""
