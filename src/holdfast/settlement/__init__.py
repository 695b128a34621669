"""Close an execution: ledger, undo material, records."""
