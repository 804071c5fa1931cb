"""What expired is not lost: the dropped entries of a run, delivered once the run is published.

    writing     each worker writes those of its partition, as Parquet, into the run's own folder
    receivers   who gets them: a folder, a Delta table, or a function
    delivery    when, and once: behind the publishing, after a crash by the next run, and taken back by a rollback

A run that was undone takes its files with it.
"""
