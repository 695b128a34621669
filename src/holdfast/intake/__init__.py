"""Intake: what people and tools hand in, turned into plans; nothing here touches the workspace."""
