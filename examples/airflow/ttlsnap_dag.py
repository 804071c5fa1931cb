"""DAG for Airflow 3 that applies the policy every night, as a command on the worker.

The worker needs ``ttlsnap`` and access to the checkpoints: on its own disk, or in an object store with credentials and
``ttlsnap[objects]``.
The exit code is that of the worst target, so a failed task means that at least one target needs your attention.
The DAG does not retry, because an immediate retry would not help. A busy target is skipped until the next night.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    dag_id="ttlsnap",
    schedule="17 3 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 0, "execution_timeout": timedelta(hours=5)},
) as dag:
    BashOperator(
        task_id="maintain",
        bash_command="ttlsnap maintain /etc/ttlsnap/policy.toml --engine local --log-format json --format json",
    )
