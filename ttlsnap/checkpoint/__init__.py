"""Reading a checkpoint: names, logs, operator metadata, state schemas."""

from ttlsnap.checkpoint.checkpoint import Checkpoint, Operator, Store, open_checkpoint
from ttlsnap.checkpoint.logs import Batch, Logs

__all__ = ["Batch", "Checkpoint", "Logs", "Operator", "Store", "open_checkpoint"]
