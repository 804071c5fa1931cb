"""Every night: the policy, as a command on the worker. For Airflow 3.

``ttlsnap`` is on the worker, and so are the checkpoints, or they are in an object store whose credentials it has. The
exit code is that of the worst target, so a task that fails says that one wants to be looked at; trying again at once
would not help, but a target that was busy is skipped, and looked at tomorrow.
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
