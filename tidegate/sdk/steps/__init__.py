"""The steps of a pipeline: applying them, the nodes they append, looking them up and removing them."""
