"""ttlsnap as a Spark application, on the master and with the settings that spark-submit is given:

    spark-submit --master spark://host:7077 ttlsnap_job.py maintain /etc/ttlsnap/policy.toml

Driver and executors need a Python in which ttlsnap is installed (PYSPARK_PYTHON), and see the same storage.
"""

from ttlsnap.cli import main

main()
