"""The packages that only some targets and outputs need, and the requirement that installs each of them."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from importlib import metadata

from ttlsnap.errors import UsageError
from ttlsnap.quoting import quotes_nothing


@dataclass(frozen=True)
class OptionalPackage:
    """A package: the name of its module, the requirement that installs it, and what it is needed for.

    The requirement is an extra of ttlsnap. PySpark is a dependency of ttlsnap, but an environment may lack it.
    """

    module: str
    requirement: str
    purpose: str


PACKAGES = {
    "pyspark": OptionalPackage("pyspark", "pyspark>=3.5,<4.4", "to run Spark"),
    "delta-spark": OptionalPackage("delta", "ttlsnap[delta]", "to start Spark with Delta"),
    "deltalake": OptionalPackage("deltalake", "ttlsnap[delta]", "to write dropped entries to a Delta table"),
    "pyroaring": OptionalPackage("pyroaring", "ttlsnap[delta]", "to read the rows of a Delta table"),
    "obstore": OptionalPackage("obstore", "ttlsnap[objects]", "to open an object store"),
    "hdfs-native": OptionalPackage("hdfs_native", "ttlsnap[hdfs]", "to open HDFS"),
    "confluent-kafka": OptionalPackage("confluent_kafka", "ttlsnap[kafka]", "to ask Kafka"),
    "jinja2": OptionalPackage("jinja2", "ttlsnap[html]", "to write a page"),
}


def require_package(name: str) -> None:
    """Raise UsageError unless an optional package is installed. The message says how to install it."""
    package = PACKAGES[name]
    if not _is_installed(package.module):
        words = (
            f"the package {name} is not installed in this Python, {sys.executable}. ttlsnap needs it "
            f"{package.purpose}. Nothing was changed. Install it with: pip install '{package.requirement}'"
        )
        raise UsageError(quotes_nothing(words))


def describe_installed(*packages: str) -> str:
    """Return the packages with their versions, as in "pyspark 4.2.0 and delta-spark 4.4.0"."""
    return " and ".join(f"{package} {_version(package)}" for package in packages)


def _is_installed(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    # A folder of that name in the current directory looks like a package, but has no loader of a module.
    return spec is not None and spec.origin is not None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(unknown version)"
