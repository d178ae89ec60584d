"""Secrets: values that pipelines use but never contain."""
