"""Backups of a checkpoint: how they are made, and how a checkpoint gets the state of one back."""
