"""Readers of a checkpoint: file names, logs, operator metadata, state schemas."""

from ttlsnap.checkpoint.checkpoint import Checkpoint, Operator, Store, open_checkpoint
from ttlsnap.checkpoint.logs import Logs, MicroBatch

__all__ = ["Checkpoint", "Logs", "MicroBatch", "Operator", "Store", "open_checkpoint"]
