"""Records: the rows of files and tables as Python objects, shared by every format and by tables."""
