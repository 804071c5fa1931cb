"""The repair of what ``check`` finds: how the state of an old query becomes that of a new one."""
