"""Planning: words become a class, a plan with safety fields, or an honest "no steps"; no model, no I/O."""
