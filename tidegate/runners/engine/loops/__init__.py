"""Generated loops: written as text, compiled with the text of the author's functions in them, and traced back."""
