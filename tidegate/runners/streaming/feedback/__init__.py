"""Feedback loops of the streaming runner: their channels and heads, the marks that go round, and their watermark."""
