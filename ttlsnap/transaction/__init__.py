"""The transaction of a run: lock, look again, stage, confirm, publish in place or finish a copy, deliver, tidy."""
