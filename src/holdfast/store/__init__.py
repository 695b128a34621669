"""Bytes that Holdfast owns: journal, blobs, ledger."""
