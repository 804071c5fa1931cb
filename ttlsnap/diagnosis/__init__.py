"""``doctor``: what is wrong with a checkpoint, which versions can still be restored, and the way out.

problems      every kind of problem: its code, how grave it is, what helps
logs          the offset and the commit log, and what an offline repartition left there
sources       the logs of sources that read files
folders       what lies in the state folder and should not; where the schemas are said to be
reading       one partition: the newest version whole, of older versions each file once
examination   all of it put together, on all cores
fixing        what ``--fix`` does, through the journal and the fence of publishing
"""

from ttlsnap.diagnosis.examination import DoctorReport, VersionReport, doctor
from ttlsnap.diagnosis.fixing import GoingBack
from ttlsnap.diagnosis.problems import CODES, Problem

__all__ = ["CODES", "DoctorReport", "GoingBack", "Problem", "VersionReport", "doctor"]
