"""What a changed streaming query does on the state of the old one, seen on real Spark.

``queries``    queries by the parts that a change can touch, each with a plain-Python twin that says what is right
``processors`` those whose state is kept by Python code
``pair``       what a pair is: an old query and a changed one, the events before and after, and the rows that are right
``pairs``      all of them; they stand in ``aggregations``, ``deduplications``, ``joins``, ``operators``,
               ``processing``, ``settings``, ``versions`` and ``harmless``
``effects``    whether a changed setting shows in the checkpoint
``attempts``   one run of one side of a pair, inside a Spark session
``observe``    runs pairs and says what came out: ``python -m tests.check.observe`` writes ``observed.json``

All but ``observe`` are loaded by every Spark version's own interpreter (3.5 to 4.2), so they import neither ttlsnap nor
pytest.
"""
