"""Looking at data: the elements of a collection, in the author's own process and on any runner.

`run` makes a run of its own of the steps that lead to a collection, and `recorder` brings back what is in it;
`table` shows it. All is imported when it is first asked for, since most pipelines are never looked into.
"""
