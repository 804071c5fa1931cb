"""DAG for Airflow 3 that applies the policy every night, as an application on a Spark cluster.

The connection ``spark_default`` names the cluster. The driver and the executors need a Python with ttlsnap, and access
to the same storage. Airflow needs apache-airflow-providers-apache-spark.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

with DAG(
    dag_id="ttlsnap_spark",
    schedule="17 3 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 0, "execution_timeout": timedelta(hours=5)},
) as dag:
    SparkSubmitOperator(
        task_id="maintain",
        conn_id="spark_default",
        application="/opt/ttlsnap/ttlsnap_job.py",  # examples/spark-submit/ttlsnap_job.py
        application_args=["maintain", "/etc/ttlsnap/policy.toml", "--log-format", "json", "--format", "json"],
        conf={"spark.pyspark.python": "/opt/ttlsnap/bin/python", "spark.executor.memory": "2g"},
    )
