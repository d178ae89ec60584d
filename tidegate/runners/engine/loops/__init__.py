"""Generated loops: their form, which is compiled with the text of the author's functions in it, and traced back."""
