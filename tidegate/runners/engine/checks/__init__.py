"""The checks of the author's code that `--checks` enables."""
