"""``doctor``: the problems of a checkpoint, the versions that Spark can still restore, and repairs.

problems    every kind of problem: its code, its severity, what to do
logs        the offset and commit logs, and traces of an offline repartition in them
sources     the logs of sources that read files
folders     files in the state folder that do not belong there; the paths of schemas
partition   one partition: the newest version completely, and each file of older versions once
run         the whole examination, on all cores
repair      the repairs of ``--fix``, with the journal and the fence of publishing
report      the result as data
"""

from ttlsnap.diagnosis.problems import CODES, Problem
from ttlsnap.diagnosis.repair import GoingBack
from ttlsnap.diagnosis.report import DoctorReport, VersionReport
from ttlsnap.diagnosis.run import doctor

__all__ = ["CODES", "DoctorReport", "GoingBack", "Problem", "VersionReport", "doctor"]
