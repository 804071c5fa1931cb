"""The stateful operators: what each keeps in its state stores, and which entries are linked."""
