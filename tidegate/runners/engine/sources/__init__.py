"""Reading splits and created elements."""
