"""Spark SQL schemas: a model of the types, its JSON and DDL spellings, and its Arrow counterpart.

``types``  the model, plain frozen dataclasses
``json``   the JSON that Spark writes into state schema files and metadata
``ddl``    the spelling that users type: ``k STRING NOT NULL, ts TIMESTAMP``
``arrow``  model to pyarrow types

Only ``arrow`` imports pyarrow, so that a command that only shows a schema starts fast.
"""
