"""ttlsnap as a Spark application, with the master and the settings of ``spark-submit``:

    spark-submit --master spark://host:7077 ttlsnap_job.py maintain /etc/ttlsnap/policy.toml

The driver and the executors need a Python with ttlsnap (PYSPARK_PYTHON), and access to the same storage.
"""

from ttlsnap.cli import main

main()
