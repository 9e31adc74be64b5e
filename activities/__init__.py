"""Everything that touches the world: the model gateway, tools, the object store, the ledger."""
