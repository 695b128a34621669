"""Programs that do work in a shadow: one protocol, one file per agent."""
