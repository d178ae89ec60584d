"""Writing files of records, a module for each format."""
