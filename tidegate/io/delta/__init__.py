"""Delta tables, through the package deltalake: a version is read, new versions are followed, and rows are appended."""
