"""Carry a simulated change out: drive one transaction and tell truthfully how it ended."""
