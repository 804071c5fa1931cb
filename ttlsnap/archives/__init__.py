"""The archive of dropped entries, to which a run delivers them after it is published.

    writing     each worker writes the dropped entries of its partition as Parquet into the run's own folder
    receivers   a folder, a Delta table, or a function
    places      the archives that a command may use
    delivery    once, after publishing; after a crash by the next run; a rollback removes the entries again

The files of an undone run are removed.
"""
