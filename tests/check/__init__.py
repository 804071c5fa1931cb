"""What a changed streaming query does on the state of the old one, seen on real Spark.

``queries``   queries by the parts that a change can touch, each with a plain-Python twin that says what is right
``processors`` those whose state is kept by Python code
``pairs``     an old query and a changed one, with the events before and after, and what a user would call right
``attempts``  one run of one side of a pair, inside a Spark session
``effects``   whether a changed setting shows in the checkpoint
``observe``   runs pairs and says what came out: ``python -m tests.check.observe`` writes ``observed.json``

``queries``, ``processors``, ``pairs``, ``effects`` and ``attempts`` are loaded by every Spark version's own interpreter (3.5 to 4.2),
so they import neither ttlsnap nor pytest.
"""
